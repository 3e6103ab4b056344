// SPDX-License-Identifier: Apache-2.0
#include "collective/matching.h"

namespace spillway::collective {
namespace {

// Takes the first of a channel's queue, and removes the queue when that was all.
template <typename Queues>
auto take_first(Queues& queues, typename Queues::iterator channel) {
  auto first = channel->second.front();
  channel->second.pop_front();
  if (channel->second.empty()) {
    queues.erase(channel);
  }
  return first;
}

}  // namespace

void ReceiveMatching::post(std::uint64_t order, std::uint16_t source, std::uint32_t tag) {
  const auto found = find_announced(source, tag);
  if (found == announced_.end()) {
    posted_[{tag, source}].push_back(order);
    return;
  }
  matches_.push_back({order, take_first(announced_, found).message});
}

std::map<ReceiveMatching::Channel, std::deque<ReceiveMatching::Announced>>::iterator
ReceiveMatching::find_announced(std::uint16_t source, std::uint32_t tag) {
  if (source != kAnyRank) {
    return announced_.find({tag, source});
  }
  auto earliest = announced_.end();
  for (auto channel = announced_.lower_bound({tag, 0});
       channel != announced_.end() && channel->first.first == tag; ++channel) {
    if (earliest == announced_.end() ||
        channel->second.front().arrival < earliest->second.front().arrival) {
      earliest = channel;
    }
  }
  return earliest;
}

void ReceiveMatching::announce(const wire::MessageId& message) {
  if (message.source >= sources_.size()) {
    return;
  }
  Source& source = sources_[message.source];
  const bool is_new = message.operation >= source.next;
  const bool is_near = message.operation - source.floor < kMaxAhead;
  if (!is_new || !is_near) {
    return;
  }
  source.early.emplace(message.operation, message);
  while (!source.early.empty() && source.early.begin()->first == source.next) {
    ++source.next;
    offer(source.early.extract(source.early.begin()).mapped());
  }
}

void ReceiveMatching::offer(const wire::MessageId& message) {
  const std::uint32_t tag = tag_of(message.signature);
  const auto of_source = posted_.find({tag, message.source});
  const auto of_any = posted_.find({tag, kAnyRank});
  if (of_source == posted_.end() && of_any == posted_.end()) {
    announced_[{tag, message.source}].push_back({message, arrivals_++});
    return;
  }
  const bool takes_any =
      of_source == posted_.end() ||
      (of_any != posted_.end() && of_any->second.front() < of_source->second.front());
  matches_.push_back({take_first(posted_, takes_any ? of_any : of_source), message});
}

std::optional<ReceiveMatching::Match> ReceiveMatching::next() {
  if (matches_.empty()) {
    return std::nullopt;
  }
  const Match match = matches_.front();
  matches_.pop_front();
  return match;
}

std::uint64_t ReceiveMatching::finish(std::uint16_t rank, std::uint64_t number) {
  Source& source = sources_[rank];
  source.finished.insert(number);
  while (source.finished.erase(source.floor) > 0) {
    ++source.floor;
  }
  return source.floor;
}

std::vector<std::uint16_t> PostedReceive::awaited() const {
  if (report_.operation.root != kAnyRank) {
    return {report_.operation.root};
  }
  std::vector<std::uint16_t> others;
  for (std::uint16_t rank = 0; rank < config_.group.workers(); ++rank) {
    if (rank != config_.group.rank && !has_left_(rank)) {
      others.push_back(rank);
    }
  }
  return others;
}

}  // namespace spillway::collective
