// SPDX-License-Identifier: Apache-2.0
#include "emulate/simulate/flow_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"

namespace spillway::emulate {

// ------------------------------------------------------------------ paths

namespace {

// All shortest paths are shorter than this.
constexpr unsigned kMaxHops = 64;
constexpr std::uint64_t kSpreadKey = 0x5EED;

double bytes_per_nanosecond(base::BitRate rate) {
  return static_cast<double>(rate.count()) / 8e9;
}

// Merges duplicates, so that each link occurs once, in ascending order.
void merge_uses(std::vector<LinkUse>& uses) {
  std::sort(uses.begin(), uses.end(),
            [](const LinkUse& a, const LinkUse& b) { return a.link < b.link; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (kept > 0 && uses[kept - 1].link == uses[i].link) {
      uses[kept - 1].weight += uses[i].weight;
    } else {
      uses[kept++] = uses[i];
    }
  }
  uses.resize(kept);
}

}  // namespace

base::Result<FabricPaths> FabricPaths::make(const scenario::Topology& topology, std::uint32_t ranks,
                                            const FabricOptions& options) {
  if (ranks > topology.hosts()) {
    return base::invalid_argument(
        fmt::format("{} ranks need as many hosts; the network has {}: use "
                    "--set topology.hosts={} or choose another network",
                    ranks, topology.hosts(), ranks));
  }
  if (options.node_ranks == 0 || options.paths == 0 || options.paths > kMaxPaths) {
    return base::invalid_argument(
        fmt::format("a node needs at least one rank, and a flow 1 to {} paths", kMaxPaths));
  }
  FabricPaths made;
  made.ranks_ = ranks;
  made.hosts_ = topology.hosts();
  made.options_ = options;
  made.spreading_ = topology.spreading;
  made.uplinks_.resize(topology.hosts());
  made.ports_.resize(topology.switch_names.size());
  for (const scenario::Link& link : topology.links) {
    // In the order in which routes number a switch's ports.
    for (const auto& [from, to] : {std::pair(link.a, link.b), std::pair(link.b, link.a)}) {
      const Hop hop{static_cast<std::uint32_t>(made.capacities_.size()), to};
      made.capacities_.push_back(bytes_per_nanosecond(link.rate));
      made.delays_.push_back(link.delay);
      if (from < topology.hosts()) {
        made.uplinks_[from] = hop;
      } else {
        made.ports_[from - topology.hosts()].push_back(hop);
      }
    }
  }
  made.routes_ = sim::shortest_routes(topology);
  made.first_node_link_ = static_cast<std::uint32_t>(made.capacities_.size());
  if (options.node_ranks > 1) {
    made.capacities_.resize(made.capacities_.size() + 2 * std::size_t{ranks},
                            bytes_per_nanosecond(options.node_rate));
  }
  return made;
}

void FabricPaths::add_uses(scenario::HostId from, scenario::HostId to, double weight,
                           const Choice& choice, std::vector<LinkUse>& uses) const {
  Hop hop = uplinks_[from];
  uses.push_back({hop.link, weight});
  for (unsigned hops = 0; hop.to >= hosts_ && hops < kMaxHops; ++hops) {
    const std::uint32_t at = hop.to - hosts_;
    const auto ports = routes_[at].ports(routes_[at].group_of(to));
    hop = ports_[at][ports[ports.size() == 1 ? 0 : choice(at, ports.size())]];
    uses.push_back({hop.link, weight});
  }
}

// Level by level: traffic that reaches a switch leaves it over all ports of shortest paths.
void FabricPaths::spread_evenly(scenario::HostId from, scenario::HostId to,
                                std::vector<LinkUse>& uses) const {
  std::vector<LinkUse> here = {{uplinks_[from].to, 1.0}};  // LinkUse::link holds a node here
  uses.push_back({uplinks_[from].link, 1.0});
  for (unsigned hops = 0; !here.empty() && hops < kMaxHops; ++hops) {
    std::vector<LinkUse> next;
    for (const LinkUse& place : here) {
      if (place.link < hosts_) {
        continue;
      }
      const std::uint32_t at = place.link - hosts_;
      const auto ports = routes_[at].ports(routes_[at].group_of(to));
      for (const sim::PortNumber port : ports) {
        const double weight = place.weight / static_cast<double>(ports.size());
        uses.push_back({ports_[at][port].link, weight});
        next.push_back({ports_[at][port].to, weight});
      }
    }
    merge_uses(next);
    here = std::move(next);
  }
}

base::Duration FabricPaths::delay_of(const std::vector<LinkUse>& uses) const {
  double delay = 0.0;
  for (const LinkUse& use : uses) {
    delay += use.weight * static_cast<double>(delays_[use.link].count());
  }
  return base::nanoseconds(static_cast<std::int64_t>(delay));
}

RankPath FabricPaths::path(std::uint32_t from, std::uint32_t to) const {
  RankPath made;
  if (are_in_one_node(from, to)) {
    made.uses = {{first_node_link_ + 2 * from, 1.0}, {first_node_link_ + 2 * to + 1, 1.0}};
    made.delay = options_.node_delay;
    return made;
  }
  if (spreading_ == scenario::Spreading::kPerPacket) {
    spread_evenly(from, to, made.uses);
  } else {
    for (std::uint32_t draw = 0; draw < options_.paths; ++draw) {
      const Choice drawn = [&](std::uint32_t at, std::size_t count) {
        return base::random_block(kSpreadKey, {from, to, at, draw})[0] % count;
      };
      add_uses(from, to, 1.0 / options_.paths, drawn, made.uses);
    }
  }
  merge_uses(made.uses);
  made.delay = delay_of(made.uses);
  return made;
}

RankPath FabricPaths::tree(const std::vector<std::uint32_t>& ranks, std::uint32_t centre) const {
  RankPath made;
  std::vector<LinkUse> drawn;
  for (std::uint32_t draw = 0; draw < options_.paths; ++draw) {
    const Choice in_turn = [&](std::uint32_t /*at*/, std::size_t count) {
      return (centre + draw) % count;
    };
    drawn.clear();
    for (const std::uint32_t rank : ranks) {
      if (rank == centre) {
        continue;
      }
      const std::size_t before = drawn.size();
      if (are_in_one_node(rank, centre)) {
        drawn.insert(drawn.end(), {{first_node_link_ + 2 * rank, 1.0},
                                   {first_node_link_ + 2 * rank + 1, 1.0},
                                   {first_node_link_ + 2 * centre, 1.0},
                                   {first_node_link_ + 2 * centre + 1, 1.0}});
        made.delay = std::max(made.delay, options_.node_delay);
        continue;
      }
      add_uses(rank, centre, 1.0, in_turn, drawn);
      const std::vector<LinkUse> up(drawn.begin() + static_cast<std::ptrdiff_t>(before),
                                    drawn.end());
      made.delay = std::max(made.delay, delay_of(up));
      add_uses(centre, rank, 1.0, in_turn, drawn);
    }
    merge_uses(drawn);
    for (const LinkUse& use : drawn) {
      made.uses.push_back({use.link, 1.0 / options_.paths});
    }
  }
  merge_uses(made.uses);
  return made;
}

// ------------------------------------------------------------------ the model

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
      return base::invalid_argument(
          fmt::format("a message from rank {} to rank {}: the network has {} ranks", transfer.from,
                      transfer.to, paths_.ranks()));
    }
    start(transfer.match, message_shape(transfer.from, transfer.to),
          static_cast<double>(transfer.bytes), 1, now);
    return {};
  }
  const auto members = static_cast<std::uint32_t>(world_.groups[transfer.group].ranks.size());
  if (members < 2) {
    tails_.emplace(now, transfer.match);
    return {};
  }
  const FlowPlan plan =
      flow_plan_of(transfer, members, options_.algorithm, options_.all_reduce_factor);
  const base::Result<const Shape*> shape =
      collective_shape(transfer.group, plan.shape, transfer.root);
  if (!shape.ok()) {
    return shape.status();
  }
  start(transfer.match, **shape, plan.flow_bytes, plan.steps, now);
  return {};
}

void FlowModel::start(MatchIndex match, const Shape& shape, double bytes, std::uint32_t steps,
                      base::Instant now) {
  network_.advance(now, ended_loads_);
  take_ended_loads(now);
  const FlowNetwork::LoadId load = network_.begin(shape.uses, bytes);
  if (open_.size() <= load) {
    open_.resize(load + 1);
  }
  open_[load] = {match, (shape.delay + options_.step_overhead) * steps};
}

void FlowModel::take_ended_loads(base::Instant now) {
  for (const FlowNetwork::LoadId load : ended_loads_) {
    tails_.emplace(now + open_[load].tail, open_[load].match);
  }
  ended_loads_.clear();
}

base::Instant FlowModel::advance(base::Instant limit, std::vector<MatchIndex>& ended) {
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
                                                                  FlowShape shape,
                                                                  std::uint32_t root) {
  const std::vector<std::uint32_t>& ranks = world_.groups[group].ranks;
  if (ranks.back() >= paths_.ranks()) {
    return base::invalid_argument(fmt::format("group '{}' has rank {}: the network has {} ranks",
                                              world_.groups[group].name, ranks.back(),
                                              paths_.ranks()));
  }
  const bool has_root = shape == FlowShape::kToRoot || shape == FlowShape::kFromRoot;
  std::unique_ptr<Shape>& made = shapes_[{group, shape, has_root ? root : 0}];
  if (!made) {
    made = std::make_unique<Shape>(make_shape(ranks, shape, root));
  }
  return made.get();
}

FlowModel::Shape FlowModel::make_shape(const std::vector<std::uint32_t>& ranks, FlowShape shape,
                                       std::uint32_t root) const {
  if (shape == FlowShape::kSwitch) {
    RankPath tree = paths_.tree(ranks, ranks.front());
    return {std::move(tree.uses), tree.delay};
  }
  if (shape == FlowShape::kPairs) {
    return make_pairs(ranks);
  }
  UseSum sum(paths_.capacities().size());
  const std::size_t n = ranks.size();
  const std::uint32_t centre =
      std::binary_search(ranks.begin(), ranks.end(), root) ? root : ranks.front();
  for (std::size_t i = 0; i < n; ++i) {
    if (shape == FlowShape::kRing) {
      sum.add(paths_.path(ranks[i], ranks[(i + 1) % n]));
    } else if (ranks[i] != centre) {
      sum.add(shape == FlowShape::kToRoot ? paths_.path(ranks[i], centre)
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
