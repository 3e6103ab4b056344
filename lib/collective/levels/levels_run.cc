// SPDX-License-Identifier: Apache-2.0
#include "collective/levels/levels_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace spillway::collective {
namespace {

// A segment is worth its own messages, one to every counterpart from every rank of a host, and
// there are enough of them to overlap.
constexpr std::size_t kSegmentBytes = std::size_t{4} << 20;
constexpr std::size_t kMessageBytes = std::size_t{256} << 10;

// Ranks whose tensors are on a device go directly. With another signature they notice.
Operation by_levels(Operation operation) {
  operation.algorithm = Algorithm::kHierarchical;
  return operation;
}

}  // namespace

std::size_t LevelsRun::segments_of(const Operation& operation, std::uint16_t world) {
  const std::size_t least = std::max(kSegmentBytes, world * kMessageBytes);
  return std::clamp<std::size_t>(operation.bytes() / least, 1, kMostSegments);
}

LevelsRun::LevelsRun(const Operation& operation, std::uint64_t key, const RunConfig& config,
                     const LevelMembers& members, std::vector<SegmentRuns> segments)
    : OperationRun(by_levels(operation), key, config), members_(members) {
  report_.algorithm = Algorithm::kHierarchical;
  const auto count = static_cast<std::uint16_t>(segments.size());
  for (SegmentRuns& runs : segments) {
    const auto number = static_cast<std::uint16_t>(segments_.size());
    Segment& segment = segments_.emplace_back();
    segment.extent = runs.extent;
    segment.share = runs.share;
    std::unique_ptr<OperationRun>* const by_level[] = {&runs.sum, &runs.exchange, &runs.hand_out};
    for (std::size_t level = 0; level < kLevels; ++level) {
      std::unique_ptr<OperationRun> run = std::move(*by_level[level]);
      MessageScope scope(members_of(static_cast<Level>(level)),
                         {report_.sequence, signature(), number, count},
                         {run->report().sequence, run->signature()});
      const auto tag = static_cast<std::uint32_t>(number * kLevels + level);
      segment.parts.push_back({std::move(run), std::move(scope),
                               PartPool(key, tag, static_cast<std::uint32_t>(count * kLevels))});
    }
  }
}

RunContext LevelsRun::inner(Part& part, RunContext& context) {
  return {context.endpoint, part.pool.over(context.pool), context.now, &part.scope};
}

// A part names ranks by their numbers among the members.
base::Status LevelsRun::checked(const base::Status& status, Level level) const {
  if (status.ok() || status.code() == base::StatusCode::kPeerFailed) {
    return status;
  }
  const Members& members = members_of(level);
  std::vector<std::uint16_t> ranks;
  for (std::uint16_t member = 0; member < members.count(); ++member) {
    ranks.push_back(members.rank(member));
  }
  return {status.code(),
          fmt::format("{} (ranks are counted among {})", status.message(), fmt::join(ranks, ", "))};
}

// ------------------------------------------------------------------ segments

base::Status LevelsRun::start(RunContext& context) {
  for (std::size_t segment = 0; segment < std::min(kWindow, segments_.size()); ++segment) {
    if (base::Status status = begin(segment, context); !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status LevelsRun::begin(std::size_t segment, RunContext& context) {
  ++begun_;
  segments_[segment].has_begun = true;
  Part& first = part(segment, Level::kSum);
  first.has_started = true;
  RunContext inside = inner(first, context);
  if (base::Status status = first.run->start(inside); !status.ok()) {
    return checked(status, Level::kSum);
  }
  return advance(segment, context);
}

// Takes the segment to the next level, if it is through with one.
base::Status LevelsRun::advance(std::size_t number, RunContext& context) {
  Segment& segment = segments_[number];
  while (segment.level < kEnded && segment.parts[segment.level].run->is_done()) {
    if (static_cast<Level>(segment.level) == Level::kExchange) {
      take_report(segment);
    }
    if (++segment.level == kEnded) {
      ++ended_;
      return begun_ < segments_.size() ? begin(begun_, context) : base::Status();
    }
    Part& next = segment.parts[segment.level];
    next.has_started = true;
    RunContext inside = inner(next, context);
    if (base::Status status = next.run->start(inside); !status.ok()) {
      return checked(status, static_cast<Level>(segment.level));
    }
  }
  return {};
}

// ------------------------------------------------------------------ events

// Messages between mates are sums or results; those about memory that was not shared say which
// (exact/plan_run.h).
LevelsRun::Level LevelsRun::level_of(const wire::MessageId& id, std::size_t segments,
                                     bool is_between_mates) {
  if (!is_between_mates) {
    return Level::kExchange;
  }
  const bool is_result = id.phase == wire::Phase::kNote ? (id.piece / segments & 1U) != 0
                                                        : id.phase == wire::Phase::kGather;
  return is_result ? Level::kHandOut : Level::kSum;
}

LevelsRun::Part& LevelsRun::part_of(const wire::MessageId& id, std::uint16_t peer,
                                    std::size_t& segment) {
  segment = id.piece % segments_.size();
  return part(segment, level_of(id, segments_.size(), members_.mates.member(peer).has_value()));
}

base::Status LevelsRun::on_received(const transport::ReceiveReport& report, RunContext& context) {
  std::size_t segment = 0;
  Part& part = part_of(report.id, report.id.source, segment);
  report_.peers[report.id.source].add(report);
  RunContext inside = inner(part, context);
  const base::Status status = part.run->on_received(part.scope.inward(report), inside);
  if (!status.ok() || is_withdrawn_) {
    return checked(status, level_of(report.id, segments_.size(),
                                    members_.mates.member(report.id.source).has_value()));
  }
  return advance(segment, context);
}

base::Status LevelsRun::on_sent(const transport::SendReport& report, RunContext& context) {
  std::size_t segment = 0;
  Part& part = part_of(report.id, report.to, segment);
  const OperationReport& counted = part.run->report();
  const std::uint64_t packets = counted.packets_sent;
  const std::uint64_t repeated = counted.packets_repeated;
  const std::uint64_t bytes = counted.wire_bytes_sent;
  RunContext inside = inner(part, context);
  const base::Status status = part.run->on_sent(part.scope.inward(report), inside);
  report_.packets_sent += counted.packets_sent - packets;
  report_.packets_repeated += counted.packets_repeated - repeated;
  report_.wire_bytes_sent += counted.wire_bytes_sent - bytes;
  if (!status.ok() || is_withdrawn_) {
    return checked(status, level_of(report.id, segments_.size(),
                                    members_.mates.member(report.to).has_value()));
  }
  return advance(segment, context);
}

base::Status LevelsRun::on_computed(std::uint32_t tag, RunContext& context) {
  const auto parts = static_cast<std::uint32_t>(segments_.size() * kLevels);
  const std::size_t segment = tag % parts / kLevels;
  const auto level = static_cast<Level>(tag % kLevels);
  Part& part = this->part(segment, level);
  RunContext inside = inner(part, context);
  const base::Status status = part.run->on_computed(tag / parts, inside);
  if (!status.ok() || is_withdrawn_) {
    return checked(status, level);
  }
  return advance(segment, context);
}

base::Instant LevelsRun::next_timeout() const {
  base::Instant next = transport::kNever;
  for (const Segment& segment : segments_) {
    for (const Part& part : segment.parts) {
      next = part.has_started ? std::min(next, part.run->next_timeout()) : next;
    }
  }
  return next;
}

base::Status LevelsRun::on_timeout(RunContext& context) {
  for (std::size_t segment = 0; segment < segments_.size(); ++segment) {
    for (std::size_t level = 0; level < kLevels; ++level) {
      Part& part = segments_[segment].parts[level];
      if (!part.has_started || part.run->next_timeout() > context.now) {
        continue;
      }
      RunContext inside = inner(part, context);
      if (base::Status status = part.run->on_timeout(inside); !status.ok()) {
        return checked(status, static_cast<Level>(level));
      }
    }
    if (segments_[segment].has_begun) {
      if (base::Status status = advance(segment, context); !status.ok()) {
        return status;
      }
    }
  }
  return {};
}

// ------------------------------------------------------------------ the end

bool LevelsRun::is_idle() const {
  return std::all_of(segments_.begin(), segments_.end(), [](const Segment& segment) {
    return std::all_of(segment.parts.begin(), segment.parts.end(),
                       [](const Part& part) { return part.run->is_idle(); });
  });
}

void LevelsRun::withdraw(RunContext& context) {
  is_withdrawn_ = true;
  for (Segment& segment : segments_) {
    for (Part& part : segment.parts) {
      if (part.has_started) {
        RunContext inside = inner(part, context);
        part.run->withdraw(inside);
      }
    }
  }
}

// An exchange that has ended here may still owe its counterparts something.
std::size_t LevelsRun::message_count() const {
  std::size_t most = 0;
  for (const Segment& segment : segments_) {
    const auto messages = [&](Level level) {
      return segment.parts[static_cast<std::size_t>(level)].run->message_count();
    };
    most = std::max(
        {most, messages(Level::kSum), messages(Level::kExchange) + messages(Level::kHandOut)});
  }
  return most * std::min(kWindow, segments_.size());
}

std::vector<std::uint16_t> LevelsRun::awaited() const {
  std::vector<std::uint16_t> ranks;
  for (const Segment& segment : segments_) {
    if (!segment.has_begun || segment.level == kEnded) {
      continue;
    }
    const Members& members = members_of(static_cast<Level>(segment.level));
    for (const std::uint16_t member : segment.parts[segment.level].run->awaited()) {
      ranks.push_back(members.rank(member));
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

bool LevelsRun::needs(std::uint16_t peer) const {
  return std::any_of(segments_.begin(), segments_.end(), [&](const Segment& segment) {
    for (std::size_t level = segment.level; level < kLevels; ++level) {
      const Part& part = segment.parts[level];
      const std::optional<std::uint16_t> member =
          members_of(static_cast<Level>(level)).member(peer);
      if (member && (!part.has_started || part.run->needs(*member))) {
        return true;
      }
    }
    return false;
  });
}

void LevelsRun::on_left(std::uint16_t peer, RunContext& context) {
  for (Segment& segment : segments_) {
    for (std::size_t level = 0; level < kLevels; ++level) {
      Part& part = segment.parts[level];
      const std::optional<std::uint16_t> member =
          members_of(static_cast<Level>(level)).member(peer);
      if (member && part.has_started) {
        RunContext inside = inner(part, context);
        part.run->on_left(*member, inside);
      }
    }
  }
}

// ------------------------------------------------------------------ report

// Takes over the report of the exchange, with ranks instead of hosts. This rank knows of its own
// share alone.
void LevelsRun::take_report(const Segment& segment) {
  const OperationReport& exchange =
      segment.parts[static_cast<std::size_t>(Level::kExchange)].run->report();
  const std::uint16_t per_host = members_.mates.count();
  const auto contributors = static_cast<std::uint16_t>(exchange.contributors * per_host);
  report_.contributors =
      report_.contributors == 0 ? contributors : std::min(report_.contributors, contributors);
  for (ShardDelivery shard : exchange.shards) {
    shard.shard = static_cast<std::uint16_t>(report_.shards.size());
    shard.owner = members_.counterparts.rank(shard.owner);
    shard.extent.first += segment.share.first;
    shard.contributors = static_cast<std::uint16_t>(shard.contributors * per_host);
    report_.shards.push_back(shard);
  }
  for (const Extent& absent : exchange.absent) {
    report_.absent.push_back({segment.share.first + absent.first, absent.count});
  }
  report_.entropy.clipped += exchange.entropy.clipped;
  for (const EntropyStep& step : exchange.entropy.steps) {
    report_.entropy.add(
        {static_cast<std::uint16_t>(step.ranks * per_host), step.values, step.bytes, step.tables});
  }
  report_.entropy.sketch.predicted += exchange.entropy.sketch.predicted;
  report_.entropy.sketch.misses += exchange.entropy.sketch.misses;
  report_.entropy.sketch.unrecovered += exchange.entropy.sketch.unrecovered;
}

}  // namespace spillway::collective
