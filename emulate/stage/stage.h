// SPDX-License-Identifier: Apache-2.0
//
// A staged world: a job of `world` ranks, of which a few are real processes and the others virtual.
// The real ranks report their calls, and the stage decides when these end:
//
//   a collective   when its last member has arrived, real (calls) or virtual (arrivals.h),
//                  and its predecessor in the group has ended; then its
//                  duration (stage_durations.h) is added
//   a message      its duration after it is sent; a virtual rank sends when it is asked to, or
//                  later if a trace says so
//
// Collectives of a group are matched by their order at each member; messages by group, ends, tag
// and order. Groups of virtual ranks alone are never called and cost nothing. The stage does not
// handle data: real ranks exchange theirs directly.
//
// No wait is endless. A call fails if what it waits for does not come within its patience. It fails
// at once if that cannot come any more, because a member left or members called different things.
// The error names the group, the sequence, the ranks that arrived and those that did not.
//
// Pure: time comes from the calls; one thread. Limits: kMaxGroups, kMaxOpen waiting calls,
// kMaxChannels, and kMaxHistories sizes per group whose arrivals are learned separately.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/stage/arrivals.h"
#include "emulate/stage/stage_durations.h"

namespace spillway::emulate {

struct StageConfig {
  std::uint32_t world = 1;
  std::vector<std::uint32_t> real{};  // ascending
  base::Duration patience = base::seconds(60);
  std::vector<SlowRank> slow{};
  bool learns_spread = true;
  std::uint64_t seed = 1;
};

// Whether a world can be staged this way; the error explains why not.
base::Status validate_stage(const StageConfig& config);

struct StageCall {
  std::uint64_t ticket = 0;  // chosen by the caller, repeated in the reply
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::uint64_t bytes = 0;
  std::uint32_t root = 0;  // a rank of the world
  base::Instant at;
  bool is_uneven = false;                  // members may pass different sizes; the largest counts
  std::optional<base::Duration> patience;  // unset: the stage's
};

struct StageMessage {
  enum class End : std::uint8_t { kSend, kReceive };
  std::uint64_t ticket = 0;
  End end = End::kSend;
  std::uint32_t peer = 0;  // a rank of the world
  std::uint32_t tag = 0;
  std::uint64_t bytes = 0;
  base::Instant at;
};

struct StageReply {
  std::uint32_t rank = 0;
  std::uint64_t ticket = 0;
  base::Status status;
  base::Instant end;  // if the status is ok
};

struct StageTotals {
  std::uint64_t collectives = 0;
  std::uint64_t messages = 0;
  std::uint64_t failures = 0;
  base::Duration duration{};        // of all collectives, according to the model
  base::Duration waited_virtual{};  // for virtual ranks, after the last real one
  // Calls per shape, of the first kMaxShapes shapes.
  std::map<CollectiveShape, std::uint64_t> shapes;
  static constexpr std::size_t kMaxShapes = 4096;
  // Operations under way at the lowest real rank when their bytes were the most, up to kMaxAtOnce.
  std::vector<CollectiveShape> at_once;
  static constexpr std::size_t kMaxAtOnce = 256;
};

class Stage {
 public:
  static constexpr std::size_t kMaxGroups = 65'536;
  static constexpr std::size_t kMaxOpen = 1'000'000;
  static constexpr std::size_t kMaxHistories = 4096;
  static constexpr std::size_t kMaxChannels = 1'000'000;  // keys of group, ends and tag

  // The config must be valid. `durations` and `trace`, which may be null, must outlive it.
  Stage(const StageConfig& config, StageDurations& durations, const TraceArrivals* trace = nullptr);

  // Returns the same number for the same name and members, which must be ascending.
  base::Result<std::uint32_t> group(const std::string& name, std::vector<std::uint32_t> ranks);
  // Only real ranks that are members of the group may call these; other calls are refused.
  void call(std::uint32_t rank, std::uint32_t group, const StageCall& call);
  void message(std::uint32_t rank, std::uint32_t group, const StageMessage& message);
  // A real rank's thread was blocked by operations in this interval.
  void waited(std::uint32_t rank, base::Instant began, base::Instant ended);
  // A real rank will call nothing more. `how`: how it left, for error messages.
  void leave(std::uint32_t rank, const std::string& how);
  // Ends what has waited too long. Returns when to call it again.
  std::optional<base::Instant> expire(base::Instant now);

  bool is_real(std::uint32_t rank) const;
  std::vector<StageReply> take_replies() { return std::exchange(replies_, {}); }
  const StageTotals& totals() const { return totals_; }
  const StageConfig& config() const { return config_; }

 private:
  struct Arrival {
    std::uint32_t rank = 0;
    StageCall call;
  };
  struct PendingCollective {
    std::vector<Arrival> arrived;
    base::Instant expires;
  };
  // How often collectives of a kind and size were called, and how far apart ranks arrive.
  struct CallHistory {
    std::uint64_t calls = 0;
    SpreadProfile spread;
  };
  struct Group {
    std::string name;
    std::vector<std::uint32_t> ranks;
    std::vector<std::uint32_t> real;
    std::map<std::uint32_t, std::uint64_t> called;                              // by rank
    std::map<std::uint64_t, PendingCollective> open;                            // by sequence
    std::map<std::pair<CollectiveKind, std::uint64_t>, CallHistory> histories;  // by kind and bytes
    base::Instant free;   // end of the latest collective
    base::Status broken;  // if not ok: the result of every call
  };
  struct Receive {
    std::uint32_t rank = 0;
    StageMessage message;
    base::Instant expires;
  };
  struct Channel {
    std::deque<base::Instant> sent;  // arrival times of messages that were not received yet
    std::deque<Receive> asked;
    std::uint64_t received = 0;
  };
  using ChannelKey = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

  struct UnderWay {
    CollectiveShape shape;
    base::Instant end;
  };

  base::Status check(std::uint32_t rank, std::uint32_t group) const;
  void complete(std::uint32_t index, std::uint64_t sequence, const PendingCollective& pending);
  base::Instant latest_arrival(std::uint32_t index, std::uint64_t sequence,
                               const PendingCollective& pending);
  void note(const Group& group, const StageCall& call);
  // How long after the mean of the real members the last virtual one arrives.
  base::Duration virtual_delay(std::uint32_t index, std::uint64_t sequence, const StageCall& call,
                               CallHistory& history);
  // For a message from a virtual rank.
  base::Duration sending_delay(std::uint32_t from, std::uint32_t to);
  // Ends all waiting calls of the group and every later one.
  void break_group(Group& group, const base::Status& why);
  base::Instant expire_collectives(base::Instant now);
  base::Instant expire_receives(base::Instant now);
  void fail_receives_from(std::uint32_t rank, const std::string& how);
  void receive(const ChannelKey& key, std::uint32_t rank, const StageMessage& message);
  void deliver(Channel& channel);
  std::string arrivals_text(const Group& group, std::uint64_t sequence,
                            const PendingCollective& pending) const;
  std::string message_text(const ChannelKey& key, const Channel& channel) const;
  void reply(std::uint32_t rank, std::uint64_t ticket, const base::Status& status,
             base::Instant end = {});

  StageConfig config_;
  StageDurations& durations_;
  const TraceArrivals* trace_;
  std::vector<Group> groups_;
  std::map<std::pair<std::string, std::vector<std::uint32_t>>, std::uint32_t> by_name_;
  std::map<ChannelKey, Channel> channels_;  // group, from, to, tag
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> requested_;  // of virtual ranks
  std::map<std::uint32_t, std::string> departed_;
  SlowRanks slow_;
  std::size_t open_ = 0;
  std::vector<UnderWay> under_way_;  // at the lowest real rank
  std::vector<StageReply> replies_;
  StageTotals totals_;
};

}  // namespace spillway::emulate
