// SPDX-License-Identifier: Apache-2.0
#include "emulate/simulate/packet_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace spillway::emulate {
namespace {

constexpr std::uint64_t kMaxFlowBytes = std::uint64_t{16} << 20;  // longer flows are split
constexpr double kChainPiece = 512.0 * 1024;
constexpr double kMaxChainPieces = 64;
constexpr std::uint32_t kPacketNetworkKey = 1;
constexpr std::uint32_t kPacketJobKey = 3;

std::uint64_t whole_bytes(double bytes) {
  return static_cast<std::uint64_t>(std::max(1.0, std::ceil(bytes)));
}

// Lossless, with all planes.
scenario::Job exact_job() {
  scenario::Job job;
  job.name = "trace";
  job.pattern.flow.loss.loss_bound_ppm = 0;
  job.pattern.flow.loss.min_planes = job.spillway.precision;
  return job;
}

}  // namespace

PacketModel::PacketModel(const World& world, const scenario::Scenario& scenario,
                         CollectiveAlgorithm algorithm)
    : world_(world), scenario_(scenario), algorithm_(algorithm) {}

base::Result<std::unique_ptr<PacketModel>> PacketModel::make(const World& world,
                                                             const scenario::Scenario& scenario,
                                                             CollectiveAlgorithm algorithm) {
  if (algorithm == CollectiveAlgorithm::kSwitch) {
    return base::invalid_argument(
        "switches that add are not simulated packet by packet here: use flows, or `spillway sim "
        "jobs`");
  }
  std::unique_ptr<PacketModel> made(new PacketModel(world, scenario, algorithm));
  if (base::Status status = made->build(); !status.ok()) {
    return status;
  }
  return made;
}

base::Status PacketModel::build() {
  if (scenario_.jobs.empty()) {
    scenario_.jobs.push_back(exact_job());
  }
  base::Result<scenario::Topology> topology = scenario::build_topology(scenario_);
  if (!topology.ok()) {
    return topology.status();
  }
  topology_ = std::move(topology).value();
  if (world_.size() > topology_.hosts()) {
    return base::invalid_argument(fmt::format("{} ranks need as many hosts; the network has {}",
                                              world_.size(), topology_.hosts()));
  }
  network_.emplace(topology_, base::derive_key(scenario_.seed, {kPacketNetworkKey, 0, 0, 0}));
  const sim::JobSurroundings surroundings{
      .stack = 0,
      .link_rate = topology_.host_rate(0),
      .trim_bytes = scenario_.port.trim_bytes,
      .seed = base::derive_key(scenario_.seed, {kPacketJobKey, 0, 0, 0})};
  stacks_ = std::make_unique<sim::JobStacks>(scenario_.jobs.front(), surroundings);
  stacks_->add_stacks_to(*network_, *this);
  for (const scenario::Fault& fault : scenario_.faults) {
    if (base::Status status = network_->add_fault(fault); !status.ok()) {
      return status;
    }
  }
  return {};
}

// ------------------------------------------------------------------ collectives as steps

// With two steps, each rank owns a shard: its parts arrive, then its sum goes out.
std::vector<PacketModel::Step> PacketModel::pairs(const std::vector<std::uint32_t>& ranks,
                                                  const FlowPlan& plan) {
  const auto n = static_cast<std::uint32_t>(ranks.size());
  const bool has_two = plan.steps > 1;
  const std::uint64_t bytes = whole_bytes(plan.flow_bytes / (has_two ? 2.0 : 1.0));
  std::vector<Step> steps(has_two ? n + 1 : 1);
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t j = 1; j < n; ++j) {
      const std::uint32_t owner = (i + j) % n;
      steps[0].flows.push_back({ranks[i], ranks[owner], bytes, has_two ? owner + 1 : kNoStep});
      if (has_two) {
        steps[owner + 1].waits_for = n - 1;
        steps[owner + 1].flows.push_back({ranks[owner], ranks[i], bytes, kNoStep});
      }
    }
  }
  return steps;
}

// In step k, rank i forwards what its neighbour sent it in step k - 1.
std::vector<PacketModel::Step> PacketModel::ring(const std::vector<std::uint32_t>& ranks,
                                                 const FlowPlan& plan) {
  const auto n = static_cast<std::uint32_t>(ranks.size());
  const std::uint64_t bytes = whole_bytes(plan.flow_bytes / plan.steps);
  std::vector<Step> steps(std::size_t{n} * (plan.steps - 1) + 1);
  const auto step_of = [n](std::uint32_t round, std::uint32_t rank) {
    return 1 + (round - 1) * n + rank;
  };
  for (std::uint32_t round = 0; round < plan.steps; ++round) {
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint32_t to = (i + 1) % n;
      const std::uint32_t next = round + 1 < plan.steps ? step_of(round + 1, to) : kNoStep;
      Step& step = steps[round == 0 ? 0 : step_of(round, i)];
      step.waits_for = round == 0 ? 0 : 1;
      step.flows.push_back({ranks[i], ranks[to], bytes, next});
    }
  }
  return steps;
}

// Sends in pieces, so that all links of the chain are busy at once.
std::vector<PacketModel::Step> PacketModel::chain(const std::vector<std::uint32_t>& ranks,
                                                  std::uint32_t root, double bytes) {
  const auto n = static_cast<std::uint32_t>(ranks.size());
  const auto found = std::find(ranks.begin(), ranks.end(), root);
  const auto first = static_cast<std::uint32_t>(found == ranks.end() ? 0 : found - ranks.begin());
  const double pieces = std::clamp(std::ceil(bytes / kChainPiece), 1.0, kMaxChainPieces);
  std::vector<Step> steps(1);
  for (double piece = 0; piece < pieces; ++piece) {
    for (std::uint32_t edge = 0; edge + 1 < n; ++edge) {
      const auto next = static_cast<std::uint32_t>(edge + 2 < n ? steps.size() : kNoStep);
      Step& step = edge == 0 ? steps[0] : steps.back();
      step.flows.push_back({ranks[(first + edge) % n], ranks[(first + edge + 1) % n],
                            whole_bytes(bytes / pieces), next});
      if (edge + 2 < n) {
        steps.push_back({1, {}});
      }
    }
  }
  return steps;
}

std::vector<PacketModel::Step> PacketModel::star(const std::vector<std::uint32_t>& ranks,
                                                 std::uint32_t root, const FlowPlan& plan) {
  const std::uint32_t centre =
      std::binary_search(ranks.begin(), ranks.end(), root) ? root : ranks.front();
  std::vector<Step> steps(1);
  for (const std::uint32_t rank : ranks) {
    if (rank != centre) {
      const bool inward = plan.shape == FlowShape::kToRoot;
      steps[0].flows.push_back(
          {inward ? rank : centre, inward ? centre : rank, whole_bytes(plan.flow_bytes), kNoStep});
    }
  }
  return steps;
}

std::vector<PacketModel::Step> PacketModel::steps_of(const Transfer& transfer,
                                                     const std::vector<std::uint32_t>& ranks,
                                                     const FlowPlan& plan) {
  switch (plan.shape) {
    case FlowShape::kRing:
      return transfer.collective == CollectiveKind::kBroadcast
                 ? chain(ranks, transfer.root, plan.flow_bytes)
                 : ring(ranks, plan);
    case FlowShape::kToRoot:
    case FlowShape::kFromRoot:
      return star(ranks, transfer.root, plan);
    default:
      return pairs(ranks, plan);
  }
}

// ------------------------------------------------------------------ running

// The network's clock stops at its last event, so this adds an empty one at `at`.
void PacketModel::mark(base::Instant at) {
  if (marked_ != at) {
    marked_ = at;
    network_->at(at, [](base::Instant) {});
  }
}

base::Status PacketModel::begin(const Transfer& transfer, base::Instant now) {
  if (network_->now() < now) {
    mark(now);
    network_->run_until(now);
  }
  OpenTransfer open;
  if (transfer.is_message) {
    open.steps.resize(1);
    if (transfer.from != transfer.to && transfer.bytes > 0) {
      open.steps[0].flows.push_back({transfer.from, transfer.to, transfer.bytes, kNoStep});
    }
  } else {
    const std::vector<std::uint32_t>& ranks = world_.groups[transfer.group].ranks;
    if (ranks.size() > 1) {
      const FlowPlan plan =
          flow_plan_of(transfer, static_cast<std::uint32_t>(ranks.size()), algorithm_, 1.0);
      open.steps = steps_of(transfer, ranks, plan);
    }
  }
  for (const Step& step : open.steps) {
    for (const StepFlow& flow : step.flows) {
      if (flow.from >= topology_.hosts() || flow.to >= topology_.hosts()) {
        return base::invalid_argument(
            fmt::format("a flow from rank {} to rank {}: the network has {} hosts", flow.from,
                        flow.to, topology_.hosts()));
      }
    }
    open.left += step.flows.size();
  }
  if (open.left == 0) {
    ended_.push_back(transfer.match);
    return {};
  }
  const std::vector<StepFlow> first = open.steps[0].flows;
  open_.emplace(transfer.match, std::move(open));
  start_flows(transfer.match, first);
  return {};
}

void PacketModel::start_flows(MatchIndex match, const std::vector<StepFlow>& flows) {
  for (const StepFlow& planned : flows) {
    // Each part of a long flow counts as a flow; only the last one releases the next step.
    const std::uint64_t parts = (planned.bytes + kMaxFlowBytes - 1) / kMaxFlowBytes;
    open_[match].left += parts - 1;
    for (std::uint64_t part = 0; part < parts; ++part) {
      scenario::Flow flow = scenario_.jobs.front().pattern.flow;
      flow.id = next_flow_++;
      flow.from = planned.from;
      flow.to = planned.to;
      flow.bytes = std::min(kMaxFlowBytes, planned.bytes - part * kMaxFlowBytes);
      flow.message.source = static_cast<std::uint16_t>(planned.from);
      flow.message.phase = wire::Phase::kPointToPoint;
      flow.message.operation = flow.id;
      flows_[flow.id] = {match, part + 1 == parts ? planned.next : kNoStep};
      network_->start_flow(flow, 0);
    }
  }
}

void PacketModel::on_flow_end(const sim::FlowResult& result, base::Instant /*now*/) {
  const auto found = flows_.find(result.id);
  if (found == flows_.end()) {
    return;  // reported before
  }
  const OpenFlow flow = found->second;
  flows_.erase(found);
  failed_flows_ += result.end == sim::FlowEnd::kDone ? 0 : 1;
  OpenTransfer& open = open_.at(flow.match);
  if (flow.next != kNoStep && --open.steps[flow.next].waits_for == 0) {
    const std::vector<StepFlow> flows = std::move(open.steps[flow.next].flows);
    start_flows(flow.match, flows);
  }
  if (--open_.at(flow.match).left == 0) {
    open_.erase(flow.match);
    ended_.push_back(flow.match);
    has_ended_ = true;
  }
}

base::Instant PacketModel::advance(base::Instant limit, std::vector<MatchIndex>& ended) {
  has_ended_ = !ended_.empty();
  base::Instant now = network_->now();
  if (!has_ended_) {
    mark(limit);
    now = network_->run_until(limit, has_ended_) ? network_->now() : limit;
  }
  std::sort(ended_.begin(), ended_.end());
  ended.insert(ended.end(), ended_.begin(), ended_.end());
  ended_.clear();
  return now;
}

}  // namespace spillway::emulate
