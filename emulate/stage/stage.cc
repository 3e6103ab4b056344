// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/random.h"
#include "emulate/trace/graph.h"

namespace spillway::emulate {
namespace {

constexpr base::Instant kNever{base::Duration(std::numeric_limits<std::int64_t>::max())};
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 50;

bool is_among(const std::vector<std::uint32_t>& ranks, std::uint32_t rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

bool is_ascending(const std::vector<std::uint32_t>& ranks) {
  return std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
}

std::string call_text(const StageCall& call) {
  return fmt::format("{} of {} bytes, root {}", collective_kind_name(call.kind), call.bytes,
                     call.root);
}

bool agree(const StageCall& a, const StageCall& b) {
  return a.kind == b.kind && a.root == b.root && a.is_uneven == b.is_uneven &&
         (a.is_uneven || a.bytes == b.bytes);
}

std::uint64_t bytes_of(const std::vector<CollectiveShape>& shapes) {
  std::uint64_t bytes = 0;
  for (const CollectiveShape& shape : shapes) {
    bytes += shape.bytes;
  }
  return bytes;
}

std::string group_text(const std::string& name) {
  return fmt::format("group '{}'", name);
}

}  // namespace

base::Status validate_stage(const StageConfig& config) {
  if (config.world < 1 || config.world > chakra::kMaxTraceRanks) {
    return base::invalid_argument(fmt::format("a world of {} ranks: 1 to {} can be staged",
                                              config.world, chakra::kMaxTraceRanks));
  }
  if (config.real.empty() || !is_ascending(config.real) || config.real.back() >= config.world) {
    return base::invalid_argument(fmt::format(
        "real ranks must be different ones of 0 to {}, at least one", config.world - 1));
  }
  for (const SlowRank& slow : config.slow) {
    if (slow.rank >= config.world || is_among(config.real, slow.rank)) {
      return base::invalid_argument(
          fmt::format("rank {} is no virtual rank: only those can be made slow here", slow.rank));
    }
  }
  return {};
}

Stage::Stage(const StageConfig& config, StageDurations& durations, const TraceArrivals* trace)
    : config_(config), durations_(durations), trace_(trace), slow_(config.slow) {
  SPILLWAY_CHECK(validate_stage(config).ok());
}

bool Stage::is_real(std::uint32_t rank) const {
  return is_among(config_.real, rank);
}

base::Result<std::uint32_t> Stage::group(const std::string& name,
                                         std::vector<std::uint32_t> ranks) {
  if (ranks.empty() || !is_ascending(ranks) || ranks.back() >= config_.world) {
    return base::invalid_argument(fmt::format("the ranks of {} are not different ones of 0 to {}",
                                              group_text(name), config_.world - 1));
  }
  const auto found = by_name_.find({name, ranks});
  if (found != by_name_.end()) {
    return found->second;
  }
  if (groups_.size() >= kMaxGroups) {
    return base::Status(base::StatusCode::kLimitExceeded,
                        fmt::format("{} groups are the most of a staged world", kMaxGroups));
  }
  const auto index = static_cast<std::uint32_t>(groups_.size());
  by_name_.emplace(std::make_pair(name, ranks), index);
  Group& made = groups_.emplace_back();
  made.name = name;
  std::set_intersection(ranks.begin(), ranks.end(), config_.real.begin(), config_.real.end(),
                        std::back_inserter(made.real));
  made.ranks = std::move(ranks);
  for (const auto& [rank, how] : departed_) {
    if (is_among(made.real, rank)) {
      made.broken = {base::StatusCode::kPeerFailed,
                     fmt::format("{}: rank {} {}", group_text(name), rank, how)};
    }
  }
  return index;
}

base::Status Stage::check(std::uint32_t rank, std::uint32_t group) const {
  if (group >= groups_.size() || !is_among(groups_[group].real, rank)) {
    return base::invalid_argument(
        fmt::format("rank {} is no real member of group {}", rank, group));
  }
  if (open_ >= kMaxOpen) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("{} calls wait: nobody comes to them", kMaxOpen)};
  }
  return groups_[group].broken;
}

void Stage::reply(std::uint32_t rank, std::uint64_t ticket, const base::Status& status,
                  base::Instant end) {
  totals_.failures += status.ok() ? 0 : 1;
  replies_.push_back({rank, ticket, status, end});
}

// ------------------------------------------------------------------ collectives

void Stage::call(std::uint32_t rank, std::uint32_t index, const StageCall& call) {
  base::Status refused = check(rank, index);
  if (refused.ok() && (call.bytes > kMaxBytes || !is_among(groups_[index].ranks, call.root))) {
    refused =
        base::invalid_argument(fmt::format("{}: its size or root cannot be", call_text(call)));
  }
  if (!refused.ok()) {
    reply(rank, call.ticket, refused);
    return;
  }
  if (rank == config_.real.front()) {
    slow_.computed_until(call.at);
  }
  Group& group = groups_[index];
  const std::uint64_t sequence = group.called[rank]++;
  PendingCollective& pending = group.open[sequence];
  const base::Instant expires = call.at + call.patience.value_or(config_.patience);
  pending.expires = pending.arrived.empty() ? expires : std::min(pending.expires, expires);
  pending.arrived.push_back({rank, call});
  ++open_;
  if (!agree(pending.arrived.front().call, call)) {
    const Arrival& first = pending.arrived.front();
    break_group(group, {base::StatusCode::kMismatch,
                        fmt::format("collective {} of {}: rank {} calls {}, rank {} calls {}",
                                    sequence, group_text(group.name), first.rank,
                                    call_text(first.call), rank, call_text(call))});
  } else if (pending.arrived.size() == group.real.size()) {
    const PendingCollective complete_one = std::move(pending);
    group.open.erase(sequence);
    open_ -= complete_one.arrived.size();
    complete(index, sequence, complete_one);
  }
}

void Stage::complete(std::uint32_t index, std::uint64_t sequence,
                     const PendingCollective& pending) {
  Group& group = groups_[index];
  StageCall call = pending.arrived.front().call;
  for (const Arrival& arrived : pending.arrived) {
    call.bytes = std::max(call.bytes, arrived.call.bytes);
  }
  const base::Instant latest = latest_arrival(index, sequence, pending);
  base::Result<base::Duration> duration = base::Duration();
  if (group.ranks.size() > 1) {
    duration = durations_.collective(
        {group.ranks, call.kind, call.bytes, call.root, /*is_behind=*/latest < group.free});
  }
  if (!duration.ok()) {
    const base::Status why(duration.status().code(),
                           fmt::format("collective {} of {}: {}", sequence, group_text(group.name),
                                       duration.status().message()));
    for (const Arrival& arrived : pending.arrived) {
      reply(arrived.rank, arrived.call.ticket, why);
    }
    break_group(group, why);
    return;
  }
  group.free = std::max(group.free, latest) + *duration;
  ++totals_.collectives;
  totals_.duration += *duration;
  note(group, call);
  for (const Arrival& arrived : pending.arrived) {
    reply(arrived.rank, arrived.call.ticket, {}, group.free);
  }
}

// Counts a collective whose end has just been decided in the totals.
void Stage::note(const Group& group, const StageCall& call) {
  const CollectiveShape shape{call.kind, static_cast<std::uint32_t>(group.ranks.size()),
                              stride_of(group.ranks), call.bytes};
  if (totals_.shapes.size() < StageTotals::kMaxShapes || totals_.shapes.contains(shape)) {
    ++totals_.shapes[shape];
  }
  if (group.real.front() != config_.real.front()) {
    return;
  }
  std::erase_if(under_way_, [&call](const UnderWay& each) { return each.end <= call.at; });
  if (under_way_.size() == StageTotals::kMaxAtOnce) {
    return;
  }
  under_way_.push_back({shape, group.free});
  std::vector<CollectiveShape> at_once;
  for (const UnderWay& each : under_way_) {
    at_once.push_back(each.shape);
  }
  if (bytes_of(at_once) > bytes_of(totals_.at_once)) {
    totals_.at_once = std::move(at_once);
  }
}

base::Instant Stage::latest_arrival(std::uint32_t index, std::uint64_t sequence,
                                    const PendingCollective& pending) {
  Group& group = groups_[index];
  std::vector<base::Instant> arrivals;
  for (const Arrival& arrived : pending.arrived) {
    arrivals.push_back(arrived.call.at);
  }
  const base::Instant last_real = *std::max_element(arrivals.begin(), arrivals.end());
  const StageCall& call = pending.arrived.front().call;
  const bool is_known = group.histories.contains({call.kind, call.bytes});
  // Beyond the limit, all sizes of a kind share one history.
  CallHistory& history = group.histories[{
      call.kind, is_known || group.histories.size() < kMaxHistories ? call.bytes : UINT64_MAX}];
  const base::Instant mean = history.spread.learn(arrivals);
  const base::Instant latest =
      std::max(last_real, mean + virtual_delay(index, sequence, call, history));
  totals_.waited_virtual += latest - last_real;
  return latest;
}

base::Duration Stage::virtual_delay(std::uint32_t index, std::uint64_t sequence,
                                    const StageCall& call, CallHistory& history) {
  const Group& group = groups_[index];
  base::Duration delay{};
  std::optional<base::Duration> traced;
  if (trace_ != nullptr) {
    traced = trace_->behind(group.ranks, call.kind, call.bytes, history.calls++);
  }
  if (traced) {
    delay = *traced;
  } else if (config_.learns_spread) {
    const base::RandomBlock drawn =
        base::random_block(config_.seed, {index, static_cast<std::uint32_t>(sequence),
                                          static_cast<std::uint32_t>(sequence >> 32), 0});
    delay = history.spread.latest_of(group.ranks.size() - group.real.size(),
                                     base::uniform_float(drawn[0]));
  }
  if (const std::optional<base::Duration> behind = slow_.furthest_behind(group.ranks)) {
    delay = std::max(delay, *behind);
  }
  return delay;
}

base::Duration Stage::sending_delay(std::uint32_t from, std::uint32_t to) {
  if (trace_ == nullptr) {
    return {};
  }
  const std::uint64_t n = requested_[{from, to}]++;
  return std::max(base::Duration(), trace_->sent_behind(from, to, n).value_or(base::Duration()));
}

void Stage::break_group(Group& group, const base::Status& why) {
  group.broken = why;
  for (const auto& [sequence, pending] : group.open) {
    open_ -= pending.arrived.size();
    for (const Arrival& arrived : pending.arrived) {
      reply(arrived.rank, arrived.call.ticket, why);
    }
  }
  group.open.clear();
}

std::string Stage::arrivals_text(const Group& group, std::uint64_t sequence,
                                 const PendingCollective& pending) const {
  std::vector<std::uint32_t> here;
  for (const Arrival& arrived : pending.arrived) {
    here.push_back(arrived.rank);
  }
  std::sort(here.begin(), here.end());
  std::vector<std::uint32_t> absent;
  std::set_difference(group.real.begin(), group.real.end(), here.begin(), here.end(),
                      std::back_inserter(absent));
  return fmt::format("{} {} of {}: {} arrived, {} did not",
                     collective_kind_name(pending.arrived.front().call.kind), sequence,
                     group_text(group.name), ranks_subject(here), ranks_subject(absent));
}

// ------------------------------------------------------------------ messages

void Stage::message(std::uint32_t rank, std::uint32_t index, const StageMessage& message) {
  base::Status refused = check(rank, index);
  if (refused.ok() && (message.bytes > kMaxBytes || message.peer == rank ||
                       !is_among(groups_[index].ranks, message.peer))) {
    refused = base::invalid_argument(
        fmt::format("rank {}: a message of {} bytes with rank {}, of {}", rank, message.bytes,
                    message.peer, group_text(groups_[index].name)));
  }
  if (refused.ok() && channels_.size() >= kMaxChannels) {
    refused = {base::StatusCode::kLimitExceeded,
               fmt::format("{} pairs of ranks with a tag are the most", kMaxChannels)};
  }
  if (!refused.ok()) {
    reply(rank, message.ticket, refused);
    return;
  }
  const bool sends = message.end == StageMessage::End::kSend;
  const std::uint32_t from = sends ? rank : message.peer;
  const std::uint32_t to = sends ? message.peer : rank;
  const ChannelKey key{index, from, to, message.tag};
  if (!sends && is_real(from)) {
    receive(key, rank, message);
    return;
  }
  const base::Result<base::Duration> duration = durations_.message(from, to, message.bytes);
  ++totals_.messages;
  if (!duration.ok()) {
    reply(rank, message.ticket, duration.status());
    return;
  }
  const base::Instant end =
      message.at + *duration + (sends ? base::Duration() : sending_delay(from, to));
  reply(rank, message.ticket, {}, end);
  if (sends && is_real(to)) {
    Channel& channel = channels_[key];
    channel.sent.push_back(end);
    ++open_;
    deliver(channel);
  }
}

void Stage::receive(const ChannelKey& key, std::uint32_t rank, const StageMessage& message) {
  if (const auto left = departed_.find(std::get<1>(key)); left != departed_.end()) {
    const auto channel = channels_.find(key);
    if (channel == channels_.end() || channel->second.sent.empty()) {
      reply(rank, message.ticket,
            {base::StatusCode::kPeerFailed,
             fmt::format("a message from rank {}: it {}", left->first, left->second)});
      return;
    }
  }
  Channel& channel = channels_[key];
  channel.asked.push_back({rank, message, message.at + config_.patience});
  ++open_;
  deliver(channel);
}

void Stage::deliver(Channel& channel) {
  while (!channel.sent.empty() && !channel.asked.empty()) {
    const Receive& first = channel.asked.front();
    reply(first.rank, first.message.ticket, {}, std::max(channel.sent.front(), first.message.at));
    channel.sent.pop_front();
    channel.asked.pop_front();
    ++channel.received;
    open_ -= 2;
  }
}

std::string Stage::message_text(const ChannelKey& key, const Channel& channel) const {
  const auto& [group, from, to, tag] = key;
  return fmt::format(
      "message {} from rank {} to rank {} with tag {} in {}: rank {} arrived, rank {} did not",
      channel.received, from, to, tag, group_text(groups_[group].name), to, from);
}

// ------------------------------------------------------------------ ends

void Stage::waited(std::uint32_t rank, base::Instant began, base::Instant ended) {
  if (rank == config_.real.front()) {
    slow_.waited(began, ended);
  }
}

void Stage::leave(std::uint32_t rank, const std::string& how) {
  if (!is_real(rank) || !departed_.emplace(rank, how).second) {
    return;
  }
  for (Group& group : groups_) {
    if (!is_among(group.real, rank) || !group.broken.ok()) {
      continue;
    }
    const auto first = group.open.begin();
    const std::string what = first == group.open.end()
                                 ? group_text(group.name)
                                 : arrivals_text(group, first->first, first->second);
    break_group(group,
                {base::StatusCode::kPeerFailed, fmt::format("{}: rank {} {}", what, rank, how)});
  }
  fail_receives_from(rank, how);
}

void Stage::fail_receives_from(std::uint32_t rank, const std::string& how) {
  for (auto& [key, channel] : channels_) {
    if (std::get<1>(key) != rank) {
      continue;
    }
    for (const Receive& asked : channel.asked) {
      reply(asked.rank, asked.message.ticket,
            {base::StatusCode::kPeerFailed,
             fmt::format("{}: rank {} {}", message_text(key, channel), rank, how)});
    }
    open_ -= channel.asked.size();
    channel.asked.clear();
  }
}

std::optional<base::Instant> Stage::expire(base::Instant now) {
  const base::Instant next = std::min(expire_collectives(now), expire_receives(now));
  return next == kNever ? std::nullopt : std::optional(next);
}

base::Instant Stage::expire_collectives(base::Instant now) {
  base::Instant next = kNever;
  for (Group& group : groups_) {
    const auto late = std::find_if(group.open.begin(), group.open.end(),
                                   [now](const auto& each) { return each.second.expires <= now; });
    if (late != group.open.end()) {
      break_group(group,
                  {base::StatusCode::kTimedOut, arrivals_text(group, late->first, late->second)});
    }
    for (const auto& [sequence, pending] : group.open) {
      next = std::min(next, pending.expires);
    }
  }
  return next;
}

base::Instant Stage::expire_receives(base::Instant now) {
  base::Instant next = kNever;
  for (auto& [key, channel] : channels_) {
    while (!channel.asked.empty() && channel.asked.front().expires <= now) {
      const Receive& late = channel.asked.front();
      reply(late.rank, late.message.ticket,
            {base::StatusCode::kTimedOut, message_text(key, channel)});
      channel.asked.pop_front();
      --open_;
    }
    if (!channel.asked.empty()) {
      next = std::min(next, channel.asked.front().expires);
    }
  }
  return next;
}

}  // namespace spillway::emulate
