// SPDX-License-Identifier: Apache-2.0
//
// Models communication as flows (flow_network.h) on a scenario's network, for tens of thousands of
// ranks. A transfer lasts as long as its flows take at their max-min fair rates. Each of its steps
// adds the delay of the longest path and `step_overhead`.
//
// Not modelled: queues, loss, and the time that rates need to converge. The packet model
// (packet_model.h) shows the error.
//
// Paths of a group are found once and kept: 16 bytes per link and shape. If more than
// kMaxPairMembers ranks all send to each other, kSampledShifts evenly spaced distances between
// ranks stand for all.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "emulate/simulate/collective_cut.h"
#include "emulate/simulate/communication_model.h"
#include "emulate/simulate/fabric_paths.h"
#include "emulate/simulate/flow_network.h"

namespace spillway::emulate {

inline constexpr std::uint32_t kMaxPairMembers = 4096;
inline constexpr std::uint32_t kSampledShifts = 64;

struct FlowModelOptions {
  CutAlgorithm algorithm = CutAlgorithm::kAutomatic;
  double efficiency = 0.94;        // share of a link's bits that carry data
  double all_reduce_factor = 1.0;  // scales an all-reduce's bytes, for its codec
  base::Duration step_overhead{};  // of hosts, per step
};

class FlowModel final : public CommunicationModel {
 public:
  // Both must outlive it.
  FlowModel(const World& world, const FabricPaths& paths, const FlowModelOptions& options);

  base::Status begin(const Transfer& transfer, base::Instant now) override;
  base::Instant advance(base::Instant limit, std::vector<MeetingIndex>& ended) override;
  bool has_open() const override { return network_.has_open() || !tails_.empty(); }
  std::uint64_t events() const override { return network_.events(); }

 private:
  struct Shape {
    std::vector<LinkUse> uses;
    base::Duration delay{};  // of its longest path
  };
  using Tail = std::pair<base::Instant, MeetingIndex>;
  // Group, shape and root; for a message, its two ends.
  using ShapeKey = std::tuple<std::uint32_t, CutShape, std::uint32_t>;

  const Shape& message_shape(std::uint32_t from, std::uint32_t to);
  base::Result<const Shape*> collective_shape(std::uint32_t group, CutShape shape,
                                              std::uint32_t root);
  Shape make_shape(const std::vector<std::uint32_t>& ranks, CutShape shape,
                   std::uint32_t root) const;
  Shape make_pairs(const std::vector<std::uint32_t>& ranks) const;
  void start(MeetingIndex meeting, const Shape& shape, double bytes, std::uint32_t steps,
             base::Instant now);
  void take_ended_loads(base::Instant now);

  const World& world_;
  const FabricPaths& paths_;
  FlowModelOptions options_;
  FlowNetwork network_;
  std::map<ShapeKey, std::unique_ptr<Shape>> shapes_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Shape>> message_shapes_;
  struct OpenLoad {
    MeetingIndex meeting = 0;
    base::Duration tail{};
  };
  std::vector<OpenLoad> open_;  // by load
  std::vector<FlowNetwork::LoadId> ended_loads_;
  std::priority_queue<Tail, std::vector<Tail>, std::greater<>> tails_;
};

}  // namespace spillway::emulate
