// SPDX-License-Identifier: Apache-2.0
//
// A parameter server's ear for the workers' calls. The first worker that calls an operation opens
// it, in the order of the operations' numbers; the calls of the others must be like it. Calls of
// operations that are long over are still taken, from workers that come late.
//
//   on_received()   a call came: an error names both ranks where it is unlike another's
//   next()          the next operation to open, if its call is there
//   leave()         a worker takes part no longer
//
// Limits: of each worker `window()` calls are expected at a time, and none of operations that are
// kMostAhead or more before those of the slowest: what is kept for comparison is bounded.
// One thread, the engine's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "collective/byte_payload.h"
#include "collective/call.h"
#include "collective/message_set.h"
#include "collective/plan_run.h"

namespace spillway::collective {

// Why a call cannot be taken, and whose fault it is.
struct CallFault {
  base::Status status;
  std::uint16_t culprit = 0;
  wire::FailureCause cause = wire::FailureCause::kMismatch;
};

struct OpenedCall {
  Call call;
  std::uint32_t sequence = 0;
  std::uint16_t caller = 0;
};

class CallIntake {
 public:
  static constexpr std::uint32_t kMostAhead = 4096;

  // `setting` outlives the intake.
  explicit CallIntake(const ExactSetting& setting);

  // Expects the first calls.
  base::Status start(RunContext& context);
  std::optional<CallFault> on_received(const transport::ReceiveReport& report, RunContext& context);
  std::optional<OpenedCall> next();

  void leave(std::uint16_t worker, RunContext& context);
  bool has_everybody_left() const;
  void withdraw(RunContext& context);

 private:
  struct Expected {
    Expected(const ExactSetting& setting)
        : sink(bytes.data(), bytes.size(), setting.layout, *setting.auth) {}
    Expected(const Expected&) = delete;
    Expected& operator=(const Expected&) = delete;

    CallBytes bytes{};
    ByteSink sink;
  };
  struct Worker {
    std::map<std::uint32_t, Expected> expected;  // by sequence; nodes keep their place
    std::uint32_t next_expected = 0;
    bool has_left = false;

    // All its calls before this one have come.
    std::uint32_t next() const {
      return expected.empty() ? next_expected : expected.begin()->first;
    }
  };
  struct Heard {
    Call call;
    std::uint16_t caller = 0;
  };

  std::uint32_t window() const;
  std::uint32_t slowest() const;
  base::Status expect_more(RunContext& context);
  std::optional<CallFault> compare(const Call& call, std::uint32_t sequence, std::uint16_t caller);

  const ExactSetting& setting_;
  MessageSet messages_;
  std::vector<Worker> workers_;
  std::map<std::uint32_t, Heard> heard_;  // by sequence: until every worker has called it
  std::uint32_t next_ = 0;                // to open
};

}  // namespace spillway::collective
