// SPDX-License-Identifier: Apache-2.0
//
// A coded all-reduce among hosts that hold several ranks each, on levels, so that a tensor crosses
// a host's link as if the host were one rank:
//
//   sum        the ranks of a host add up: each ends with the host's sum of its share, exactly
//   exchange   a coded all-reduce of that share among the ranks with the same place on each host
//   hand out   the ranks of a host give each other their shares of the result
//
// All ranks of a host send at the same time, each its share. Sum and hand-out are plans
// (exact/plan_run.h), mostly through shared memory; the exchange is the codec's own run among the
// counterparts, which does not know that it is a part (message_scope.h). It codes the hosts' sums,
// once: loss bound, error feedback and report are those of the codec, with hosts in place of ranks.
//
// The tensor is cut into segments. They begin in their order, kWindow at a time, so that one
// segment's sum overlaps with another's exchange. All ranks keep that order, and a segment needs
// only itself, so the first one that has not ended everywhere goes on everywhere.
//
// All work is done in the output: a rank's share of the host's sum, then of the result, then the
// others' shares. A rank's input has arrived wherever it is sent before a result comes that could
// overwrite it, so input and output may be one memory.
//
// One thread, the engine's, except for the parts' jobs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "collective/hosts.h"
#include "collective/levels/message_scope.h"
#include "collective/operation_run.h"

namespace spillway::collective {

// The ranks of a rank's host and its counterparts; outlives the runs.
struct LevelMembers {
  LevelMembers(const Hosts& hosts, std::uint16_t rank)
      : mates(hosts.mates(rank)), counterparts(hosts.counterparts(rank)) {}

  Members mates;
  Members counterparts;
};

class LevelsRun final : public OperationRun {
  static constexpr std::size_t kMaxPieceNumbers = std::size_t{1} << 16;

 public:
  // Segments under way at a time, and most of them in one operation.
  static constexpr std::size_t kWindow = 3;
  static constexpr std::size_t kMostSegments = 8;
  // Pieces of a segment at a level, so that those of all segments, with second names and receipts,
  // can be numbered.
  static constexpr std::size_t kMostPieces = kMaxPieceNumbers / kMostSegments / 4;

  // The number of segments of an operation among so many ranks.
  static std::size_t segments_of(const Operation& operation, std::uint16_t world);
  // The key of a segment's runs: no other operation's has their number.
  static std::uint64_t segment_key(std::uint64_t key, std::size_t segment) {
    return key * kMostSegments + segment;
  }

  // The runs of one segment. Numbers of ranks are those of mates and counterparts.
  struct SegmentRuns {
    Extent extent;  // of the tensor
    Extent share;   // this rank's share, in the tensor
    std::unique_ptr<OperationRun> sum;
    std::unique_ptr<OperationRun> exchange;
    std::unique_ptr<OperationRun> hand_out;
  };

  // Config and members outlive the run.
  LevelsRun(const Operation& operation, std::uint64_t key, const RunConfig& config,
            const LevelMembers& members, std::vector<SegmentRuns> segments);

  base::Status start(RunContext& context) override;
  base::Status on_received(const transport::ReceiveReport& report, RunContext& context) override;
  base::Status on_sent(const transport::SendReport& report, RunContext& context) override;
  base::Status on_computed(std::uint32_t tag, RunContext& context) override;
  base::Instant next_timeout() const override;
  base::Status on_timeout(RunContext& context) override;

  bool is_done() const override { return ended_ == segments_.size(); }
  bool is_idle() const override;
  void withdraw(RunContext& context) override;

  std::size_t message_count() const override;
  std::vector<std::uint16_t> awaited() const override;
  void on_left(std::uint16_t peer, RunContext& context) override;
  bool needs(std::uint16_t peer) const override;

 private:
  enum class Level : std::uint8_t { kSum, kExchange, kHandOut };
  static constexpr std::size_t kLevels = 3;
  // A segment is at one level after the other, and then has ended.
  static constexpr std::size_t kEnded = kLevels;

  // One level of one segment.
  struct Part {
    std::unique_ptr<OperationRun> run;
    MessageScope scope;
    PartPool pool;
    bool has_started = false;
  };
  struct Segment {
    Extent extent;
    Extent share;
    std::vector<Part> parts;  // by level
    std::size_t level = 0;
    bool has_begun = false;
  };

  Part& part(std::size_t segment, Level level) {
    return segments_[segment].parts[static_cast<std::size_t>(level)];
  }
  const Members& members_of(Level level) const {
    return level == Level::kExchange ? members_.counterparts : members_.mates;
  }
  static Level level_of(const wire::MessageId& id, std::size_t segments, bool is_between_mates);
  Part& part_of(const wire::MessageId& id, std::uint16_t peer, std::size_t& segment);
  base::Status checked(const base::Status& status, Level level) const;
  static RunContext inner(Part& part, RunContext& context);
  base::Status begin(std::size_t segment, RunContext& context);
  base::Status advance(std::size_t segment, RunContext& context);
  void take_report(const Segment& segment);

  const LevelMembers& members_;
  std::vector<Segment> segments_;
  std::size_t begun_ = 0;
  std::size_t ended_ = 0;
  bool is_withdrawn_ = false;
};

}  // namespace spillway::collective
