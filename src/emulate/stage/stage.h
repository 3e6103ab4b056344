// SPDX-License-Identifier: Apache-2.0
//
// A staged world: a job of `world` ranks of which a few are real processes and nobody runs the
// others. The stage is told of what real ranks call and says when it ends:
//
//   a collective   when its last member has come, real (calls) or virtual (trace_arrivals.h, or
//                  else virtual_arrivals.h), and the one before it in its group has ended, and then
//                  its duration (stage_durations.h)
//   a message      its duration after it is sent; a virtual rank sends when it is asked to, or
//                  later, as a trace says
//
// Collectives of a group are matched by their order at each member; messages by group, ends, tag
// and order. Groups of virtual ranks alone are nobody's call and cost nothing. Data is not the
// stage's: real ranks exchange theirs among themselves.
//
// No wait is for ever: what a call waits for must come within its patience, and what cannot come,
// because a member left or members called different things, ends at once. Each waiting call then
// gets a sentence with the group, the sequence, who came and who did not.
//
// Pure: time is what calls say; one thread. Limits: kMaxGroups, kMaxOpen waiting calls,
// kMaxChannels, kMaxHabits sizes of a group whose ranks' habits are learned apart.
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
#include "emulate/stage/stage_durations.h"
#include "emulate/stage/trace_arrivals.h"
#include "emulate/stage/virtual_arrivals.h"

namespace spillway::emulate {

struct StageConfig {
  std::uint32_t world = 1;
  std::vector<std::uint32_t> real{};  // ascending
  base::Duration patience = base::seconds(60);
  std::vector<SlowRank> slow{};
  bool learns_spread = true;
  std::uint64_t seed = 1;
};

// Whether a world can be staged so; the sentence where not.
base::Status validate_stage(const StageConfig& config);

struct StageCall {
  std::uint64_t ticket = 0;  // the caller's, for the answer
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::uint64_t bytes = 0;
  std::uint32_t root = 0;  // a rank of the world
  base::Instant at;
  bool is_uneven = false;                  // members may hand in different sizes: the most counts
  std::optional<base::Duration> patience;  // else the stage's
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

struct StageAnswer {
  std::uint32_t rank = 0;
  std::uint64_t ticket = 0;
  base::Status status;
  base::Instant end;  // where the status is ok
};

struct StageTotals {
  std::uint64_t collectives = 0;
  std::uint64_t messages = 0;
  std::uint64_t failures = 0;
  base::Duration duration{};        // of all collectives, as modelled
  base::Duration waited_virtual{};  // for virtual ranks, beyond the last real one
  // How often each was called; the first kMaxShapes of them.
  std::map<CollectiveShape, std::uint64_t> shapes;
  static constexpr std::size_t kMaxShapes = 4096;
  // What was under way at the lowest real rank when that was most bytes; up to kMaxAtOnce.
  std::vector<CollectiveShape> at_once;
  static constexpr std::size_t kMaxAtOnce = 256;
};

class Stage {
 public:
  static constexpr std::size_t kMaxGroups = 65'536;
  static constexpr std::size_t kMaxOpen = 1'000'000;
  static constexpr std::size_t kMaxHabits = 4096;
  static constexpr std::size_t kMaxChannels = 1'000'000;  // pairs of real ranks with a tag

  // The config is valid; durations and trace, which may be null, outlive it.
  Stage(const StageConfig& config, StageDurations& durations, const TraceArrivals* trace = nullptr);

  // The same for the same name and members, which are ascending.
  base::Result<std::uint32_t> group(const std::string& name, std::vector<std::uint32_t> ranks);
  // By real ranks that are members of the group; others, and unknown groups, are refused.
  void call(std::uint32_t rank, std::uint32_t group, const StageCall& call);
  void message(std::uint32_t rank, std::uint32_t group, const StageMessage& message);
  // A real rank's thread was blocked for operations.
  void waited(std::uint32_t rank, base::Instant began, base::Instant ended);
  // A real rank will call nothing more: `how` it left, for sentences.
  void leave(std::uint32_t rank, const std::string& how);
  // Ends what has waited for too long, and says when to come again.
  std::optional<base::Instant> expire(base::Instant now);

  bool is_real(std::uint32_t rank) const;
  std::vector<StageAnswer> take_answers() { return std::exchange(answers_, {}); }
  const StageTotals& totals() const { return totals_; }
  const StageConfig& config() const { return config_; }

 private:
  struct Came {
    std::uint32_t rank = 0;
    StageCall call;
  };
  struct Meeting {
    std::vector<Came> came;
    base::Instant expires;
  };
  // Of collectives of a kind and size: how often they were called, and how ranks come to them.
  struct Habit {
    std::uint64_t calls = 0;
    SpreadProfile spread;
  };
  struct Group {
    std::string name;
    std::vector<std::uint32_t> ranks;
    std::vector<std::uint32_t> real;
    std::map<std::uint32_t, std::uint64_t> called;                     // by rank
    std::map<std::uint64_t, Meeting> open;                             // by sequence
    std::map<std::pair<CollectiveKind, std::uint64_t>, Habit> habits;  // by kind and bytes
    base::Instant free;   // the end of the last collective
    base::Status broken;  // not ok: what every call gets
  };
  struct Receive {
    std::uint32_t rank = 0;
    StageMessage message;
    base::Instant expires;
  };
  struct Channel {
    std::deque<base::Instant> sent;  // when what was sent and not received yet has come
    std::deque<Receive> asked;
    std::uint64_t received = 0;
  };
  using ChannelKey = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

  struct UnderWay {
    CollectiveShape shape;
    base::Instant end;
  };

  base::Status check(std::uint32_t rank, std::uint32_t group) const;
  void complete(std::uint32_t index, std::uint64_t sequence, const Meeting& meeting);
  base::Instant latest_arrival(std::uint32_t index, std::uint64_t sequence, const Meeting& meeting);
  void note(const Group& group, const StageCall& call);
  // Of virtual members, behind the mean of the real ones.
  base::Duration virtual_delay(std::uint32_t index, std::uint64_t sequence, const StageCall& call,
                               Habit& habit);
  // Of a message from a virtual rank.
  base::Duration sending_delay(std::uint32_t from, std::uint32_t to);
  // Ends all that waits in the group, and whatever is called in it later.
  void break_group(Group& group, const base::Status& why);
  base::Instant expire_collectives(base::Instant now);
  base::Instant expire_receives(base::Instant now);
  void fail_receives_from(std::uint32_t rank, const std::string& how);
  void receive(const ChannelKey& key, std::uint32_t rank, const StageMessage& message);
  void deliver(Channel& channel);
  std::string who_came(const Group& group, std::uint64_t sequence, const Meeting& meeting) const;
  std::string who_sent(const ChannelKey& key, const Channel& channel) const;
  void answer(std::uint32_t rank, std::uint64_t ticket, const base::Status& status,
              base::Instant end = {});

  StageConfig config_;
  StageDurations& durations_;
  const TraceArrivals* trace_;
  std::vector<Group> groups_;
  std::map<std::pair<std::string, std::vector<std::uint32_t>>, std::uint32_t> by_name_;
  std::map<ChannelKey, Channel> channels_;                                  // group, from, to, tag
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> asked_;  // of virtual ranks
  std::map<std::uint32_t, std::string> left_;
  SlowRanks slow_;
  std::size_t open_ = 0;
  std::vector<UnderWay> under_way_;  // at the lowest real rank
  std::vector<StageAnswer> answers_;
  StageTotals totals_;
};

}  // namespace spillway::emulate
