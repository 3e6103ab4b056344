// SPDX-License-Identifier: Apache-2.0
//
// Models communication as flows on a scenario's network, for tens of thousands of ranks.
// FabricPaths finds the links of each flow, flow_network.h computes the rates, and FlowModel turns
// transfers into flows. A transfer lasts as long as its flows take at their max-min fair rates.
// Each of its steps adds the delay of the longest path and `step_overhead`.
//
// Not modelled: queues, loss, and the time that rates need to converge. The packet model
// (packet_model.h) shows the error.
//
// Limits: if more than kMaxPairMembers ranks all send to each other, kSampledShifts evenly spaced
// distances between ranks represent all of them. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/simulate/flow_network.h"
#include "emulate/simulate/graph_run.h"
#include "sim/scenario/topology.h"
#include "sim/switch_node.h"

namespace spillway::emulate {

// ------------------------------------------------------------------ paths

struct FabricOptions {
  std::uint32_t node_ranks = 1;
  base::BitRate node_rate = base::gigabits_per_second(3'600);  // per rank, inside its node
  base::Duration node_delay = base::microseconds(1);
  std::uint32_t paths = 8;  // as many as the transport uses; TCP uses one
};
inline constexpr std::uint32_t kMaxPaths = 64;

struct RankPath {
  std::vector<LinkUse> uses;  // each link at most once
  base::Duration delay{};     // of one packet
};

// The directed links that a flow between two ranks crosses in a scenario's network, and its share
// of each. Rank r is host r of the topology. Ranks may be grouped in nodes of `node_ranks`
// consecutive ranks. Traffic inside a node bypasses the network: each rank has one link to the
// other ranks of its node and one from them.
//
// A flow is spread over `paths` of the equally short paths, drawn by a hash of its ends, as
// switches do by ports. With per-packet spreading, it is spread evenly over all of them. Built
// once; the topology need not outlive it.
class FabricPaths {
 public:
  // Fails if there are fewer hosts than ranks.
  static base::Result<FabricPaths> make(const scenario::Topology& topology, std::uint32_t ranks,
                                        const FabricOptions& options);

  // Capacity of each link in bytes per nanosecond, counted on the wire.
  const std::vector<double>& capacities() const { return capacities_; }
  // The ranks must differ.
  RankPath path(std::uint32_t from, std::uint32_t to) const;
  // For switches that add: one copy over every link from the ranks to `centre`, one of them, and
  // one copy back. All ranks draw the same paths, so that copies meet as early as possible.
  RankPath tree(const std::vector<std::uint32_t>& ranks, std::uint32_t centre) const;
  std::uint32_t ranks() const { return ranks_; }

 private:
  struct Hop {
    std::uint32_t link = 0;
    scenario::NodeId to = 0;
  };

  FabricPaths() = default;
  // Picks one of `count` equally good ports of a switch.
  using Choice = std::function<std::uint64_t(std::uint32_t at, std::size_t count)>;
  void add_uses(scenario::HostId from, scenario::HostId to, double weight, const Choice& choice,
                std::vector<LinkUse>& uses) const;
  bool are_in_one_node(std::uint32_t a, std::uint32_t b) const {
    return options_.node_ranks > 1 && a / options_.node_ranks == b / options_.node_ranks;
  }
  base::Duration delay_of(const std::vector<LinkUse>& uses) const;
  void spread_evenly(scenario::HostId from, scenario::HostId to, std::vector<LinkUse>& uses) const;

  std::uint32_t ranks_ = 0;
  std::uint32_t hosts_ = 0;
  FabricOptions options_;
  scenario::Spreading spreading_ = scenario::Spreading::kPerFlow;
  std::vector<double> capacities_;
  std::vector<base::Duration> delays_;   // by link
  std::vector<Hop> uplinks_;             // of hosts
  std::vector<std::vector<Hop>> ports_;  // of switches
  std::vector<sim::Routes> routes_;      // of switches
  std::uint32_t first_node_link_ = 0;
};

// ------------------------------------------------------------------ the model

inline constexpr std::uint32_t kMaxPairMembers = 4096;
inline constexpr std::uint32_t kSampledShifts = 64;

struct FlowModelOptions {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kAutomatic;
  double efficiency = 0.94;        // share of a link's bits that carry data
  double all_reduce_factor = 1.0;  // scales an all-reduce's bytes, for its codec
  base::Duration step_overhead{};  // of hosts, per step
};

// The paths of a group are found once and kept: 16 bytes per link and shape.
class FlowModel final : public CommunicationModel {
 public:
  // Both must outlive it.
  FlowModel(const World& world, const FabricPaths& paths, const FlowModelOptions& options);

  base::Status begin(const Transfer& transfer, base::Instant now) override;
  base::Instant advance(base::Instant limit, std::vector<MatchIndex>& ended) override;
  bool has_open() const override { return network_.has_open() || !tails_.empty(); }
  std::uint64_t events() const override { return network_.events(); }

 private:
  struct Shape {
    std::vector<LinkUse> uses;
    base::Duration delay{};  // of its longest path
  };
  using Tail = std::pair<base::Instant, MatchIndex>;
  // Group, shape and root; for a message, its two ends.
  using ShapeKey = std::tuple<std::uint32_t, FlowShape, std::uint32_t>;

  const Shape& message_shape(std::uint32_t from, std::uint32_t to);
  base::Result<const Shape*> collective_shape(std::uint32_t group, FlowShape shape,
                                              std::uint32_t root);
  Shape make_shape(const std::vector<std::uint32_t>& ranks, FlowShape shape,
                   std::uint32_t root) const;
  Shape make_pairs(const std::vector<std::uint32_t>& ranks) const;
  void start(MatchIndex match, const Shape& shape, double bytes, std::uint32_t steps,
             base::Instant now);
  void take_ended_loads(base::Instant now);

  const World& world_;
  const FabricPaths& paths_;
  FlowModelOptions options_;
  FlowNetwork network_;
  std::map<ShapeKey, std::unique_ptr<Shape>> shapes_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Shape>> message_shapes_;
  struct OpenLoad {
    MatchIndex match = 0;
    base::Duration tail{};
  };
  std::vector<OpenLoad> open_;  // by load
  std::vector<FlowNetwork::LoadId> ended_loads_;
  std::priority_queue<Tail, std::vector<Tail>, std::greater<>> tails_;
};

}  // namespace spillway::emulate
