// SPDX-License-Identifier: Apache-2.0
#include "emulate/simulate/flow_model.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::emulate {
namespace {

std::vector<double> data_rates(const FabricPaths& paths, double efficiency) {
  std::vector<double> rates = paths.capacities();
  for (double& rate : rates) {
    rate *= efficiency;
  }
  return rates;
}

// Sums weights by link without sorting millions of uses.
class UseSum {
 public:
  explicit UseSum(std::size_t links) : weights_(links, 0.0) {}

  void add(const RankPath& path, double flows = 1.0) {
    delay_ = std::max(delay_, path.delay);
    for (const LinkUse& use : path.uses) {
      if (weights_[use.link] == 0.0) {
        touched_.push_back(use.link);
      }
      weights_[use.link] += flows * use.weight;
    }
  }
  std::vector<LinkUse> uses() {
    std::sort(touched_.begin(), touched_.end());
    std::vector<LinkUse> made;
    made.reserve(touched_.size());
    for (const std::uint32_t link : touched_) {
      made.push_back({link, weights_[link]});
    }
    return made;
  }
  base::Duration delay() const { return delay_; }

 private:
  std::vector<double> weights_;
  std::vector<std::uint32_t> touched_;
  base::Duration delay_{};
};

}  // namespace

FlowModel::FlowModel(const World& world, const FabricPaths& paths, const FlowModelOptions& options)
    : world_(world),
      paths_(paths),
      options_(options),
      network_(data_rates(paths, options.efficiency)) {}

base::Status FlowModel::begin(const Transfer& transfer, base::Instant now) {
  if (transfer.is_message) {
    if (transfer.from >= paths_.ranks() || transfer.to >= paths_.ranks()) {
      return base::invalid_argument(fmt::format("a message from rank {} to rank {}, of {} ranks",
                                                transfer.from, transfer.to, paths_.ranks()));
    }
    start(transfer.meeting, message_shape(transfer.from, transfer.to),
          static_cast<double>(transfer.bytes), 1, now);
    return {};
  }
  const auto members = static_cast<std::uint32_t>(world_.groups[transfer.group].ranks.size());
  if (members < 2) {
    tails_.emplace(now, transfer.meeting);
    return {};
  }
  const Cut cut = cut_of(transfer, members, options_.algorithm, options_.all_reduce_factor);
  const base::Result<const Shape*> shape =
      collective_shape(transfer.group, cut.shape, transfer.root);
  if (!shape.ok()) {
    return shape.status();
  }
  start(transfer.meeting, **shape, cut.flow_bytes, cut.steps, now);
  return {};
}

void FlowModel::start(MeetingIndex meeting, const Shape& shape, double bytes, std::uint32_t steps,
                      base::Instant now) {
  network_.advance(now, ended_loads_);
  take_ended_loads(now);
  const FlowNetwork::LoadId load = network_.begin(shape.uses, bytes);
  if (open_.size() <= load) {
    open_.resize(load + 1);
  }
  open_[load] = {meeting, (shape.delay + options_.step_overhead) * steps};
}

void FlowModel::take_ended_loads(base::Instant now) {
  for (const FlowNetwork::LoadId load : ended_loads_) {
    tails_.emplace(now + open_[load].tail, open_[load].meeting);
  }
  ended_loads_.clear();
}

base::Instant FlowModel::advance(base::Instant limit, std::vector<MeetingIndex>& ended) {
  for (;;) {
    const bool has_tail = !tails_.empty();
    base::Instant next = has_tail ? tails_.top().first : limit + base::nanoseconds(1);
    if (network_.has_open()) {
      next = std::min(next, network_.next_end());
    }
    if (next > limit) {
      network_.advance(limit, ended_loads_);
      return limit;
    }
    network_.advance(next, ended_loads_);
    take_ended_loads(next);
    if (tails_.empty() || tails_.top().first > next) {
      continue;
    }
    const std::size_t first = ended.size();
    while (!tails_.empty() && tails_.top().first <= next) {
      ended.push_back(tails_.top().second);
      tails_.pop();
    }
    std::sort(ended.begin() + static_cast<std::ptrdiff_t>(first), ended.end());
    return next;
  }
}

const FlowModel::Shape& FlowModel::message_shape(std::uint32_t from, std::uint32_t to) {
  std::unique_ptr<Shape>& shape = message_shapes_[std::uint64_t{from} << 32 | to];
  if (!shape) {
    shape = std::make_unique<Shape>();
    if (from != to) {
      RankPath path = paths_.path(from, to);
      *shape = {std::move(path.uses), path.delay};
    }
  }
  return *shape;
}

base::Result<const FlowModel::Shape*> FlowModel::collective_shape(std::uint32_t group,
                                                                  CutShape shape,
                                                                  std::uint32_t root) {
  const std::vector<std::uint32_t>& ranks = world_.groups[group].ranks;
  if (ranks.back() >= paths_.ranks()) {
    return base::invalid_argument(fmt::format("group '{}' has rank {}, of {} ranks",
                                              world_.groups[group].name, ranks.back(),
                                              paths_.ranks()));
  }
  const bool has_root = shape == CutShape::kToRoot || shape == CutShape::kFromRoot;
  std::unique_ptr<Shape>& made = shapes_[{group, shape, has_root ? root : 0}];
  if (!made) {
    made = std::make_unique<Shape>(make_shape(ranks, shape, root));
  }
  return made.get();
}

FlowModel::Shape FlowModel::make_shape(const std::vector<std::uint32_t>& ranks, CutShape shape,
                                       std::uint32_t root) const {
  if (shape == CutShape::kSwitch) {
    RankPath tree = paths_.tree(ranks, ranks.front());
    return {std::move(tree.uses), tree.delay};
  }
  if (shape == CutShape::kPairs) {
    return make_pairs(ranks);
  }
  UseSum sum(paths_.capacities().size());
  const std::size_t n = ranks.size();
  const std::uint32_t centre =
      std::binary_search(ranks.begin(), ranks.end(), root) ? root : ranks.front();
  for (std::size_t i = 0; i < n; ++i) {
    if (shape == CutShape::kRing) {
      sum.add(paths_.path(ranks[i], ranks[(i + 1) % n]));
    } else if (ranks[i] != centre) {
      sum.add(shape == CutShape::kToRoot ? paths_.path(ranks[i], centre)
                                         : paths_.path(centre, ranks[i]));
    }
  }
  return {sum.uses(), sum.delay()};
}

FlowModel::Shape FlowModel::make_pairs(const std::vector<std::uint32_t>& ranks) const {
  UseSum sum(paths_.capacities().size());
  const std::size_t n = ranks.size();
  const std::size_t shifts = n > kMaxPairMembers ? kSampledShifts : n - 1;
  const double flows = static_cast<double>(n - 1) / static_cast<double>(shifts);
  for (std::size_t s = 0; s < shifts; ++s) {
    const std::size_t shift = 1 + s * (n - 1) / shifts;
    for (std::size_t i = 0; i < n; ++i) {
      sum.add(paths_.path(ranks[i], ranks[(i + shift) % n]), flows);
    }
  }
  return {sum.uses(), sum.delay()};
}

}  // namespace spillway::emulate
