// SPDX-License-Identifier: Apache-2.0
//
// A worker's calls to the parameter servers: one message to each for every collective operation, in
// the point-to-point phase, whose step is the operation's number. Reliable, at the highest
// priority: a server that has not heard the call does not expect the data behind it.
//
// Calls stay here until their servers have them. One thread, the engine's.
#pragma once

#include <cstdint>
#include <map>

#include "collective/byte_payload.h"
#include "collective/call.h"
#include "collective/message_set.h"
#include "collective/plan_run.h"

namespace spillway::collective {

// The id of a call.
wire::MessageId call_id(std::uint32_t sequence, std::uint16_t worker);
inline constexpr std::uint8_t kCallPriority = SPILLWAY_PRIORITIES - 1;

class CallOutbox {
 public:
  // `setting` outlives the outbox.
  explicit CallOutbox(const ExactSetting& setting) : setting_(setting) {}

  base::Status send(const Call& call, std::uint32_t sequence, RunContext& context);
  void on_sent(const transport::SendReport& report);
  void withdraw(RunContext& context);

  bool is_empty() const { return calls_.empty(); }

 private:
  struct Outgoing {
    Outgoing(const Call& call, const ExactSetting& setting)
        : bytes(encode_call(call)),
          source(bytes.data(), bytes.size(), setting.layout, setting.job, *setting.auth) {}

    const CallBytes bytes;
    ByteSource source;
    std::uint16_t open = 0;  // servers that do not have it yet
  };

  const ExactSetting& setting_;
  MessageSet messages_;
  std::map<std::uint32_t, Outgoing> calls_;  // by sequence; nodes keep their place
};

}  // namespace spillway::collective
