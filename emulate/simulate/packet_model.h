// SPDX-License-Identifier: Apache-2.0
//
// Simulates communication packet by packet. Collectives become flows (graph_run.h). The
// simulator's network carries them with the shipped transport and switch, or with TCP, as the
// scenario's `job` line says. A collective's steps wait for each other as in the library: a rank of
// a ring forwards what it has received, and an owner sends its sum when all parts have arrived.
//
// For up to a few thousand ranks and small transfers: a packet costs microseconds. Each rank has
// its own host. Switches that add and codecs are not supported (`spillway sim jobs` has them). A
// flow that the transport gives up counts as ended and is counted in failed_flows().
//
// Made once from a scenario, which it copies. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "emulate/simulate/graph_run.h"
#include "sim/host.h"
#include "sim/network.h"
#include "sim/scenario/scenario.h"
#include "sim/simulation.h"

namespace spillway::emulate {

class PacketModel final : public CommunicationModel, private sim::FlowListener {
 public:
  // The scenario's first job says how flows are carried. Without a job: Spillway, lossless.
  static base::Result<std::unique_ptr<PacketModel>> make(const World& world,
                                                         const scenario::Scenario& scenario,
                                                         CollectiveAlgorithm algorithm);

  base::Status begin(const Transfer& transfer, base::Instant now) override;
  base::Instant advance(base::Instant limit, std::vector<MatchIndex>& ended) override;
  bool has_open() const override { return !open_.empty() || !ended_.empty(); }
  std::uint64_t events() const override { return network_->events_run(); }

  std::uint64_t failed_flows() const { return failed_flows_; }
  std::uint64_t packets_sent() const { return network_->totals().sent; }

 private:
  static constexpr std::uint32_t kNoStep = UINT32_MAX;
  // A flow of a transfer, and the step that waits for it.
  struct StepFlow {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint64_t bytes = 0;
    std::uint32_t next = kNoStep;
  };
  // Flows that begin when `waits_for` other flows have ended.
  struct Step {
    std::uint32_t waits_for = 0;
    std::vector<StepFlow> flows;
  };
  struct OpenTransfer {
    std::uint64_t left = 0;  // flows that have not ended
    std::vector<Step> steps;
  };
  struct OpenFlow {
    MatchIndex match = 0;
    std::uint32_t next = kNoStep;
  };

  PacketModel(const World& world, const scenario::Scenario& scenario,
              CollectiveAlgorithm algorithm);
  base::Status build();
  void on_flow_end(const sim::FlowResult& result, base::Instant now) override;
  void start_flows(MatchIndex match, const std::vector<StepFlow>& flows);
  void mark(base::Instant at);
  // The first step waits for nothing.
  static std::vector<Step> pairs(const std::vector<std::uint32_t>& ranks, const FlowPlan& plan);
  static std::vector<Step> ring(const std::vector<std::uint32_t>& ranks, const FlowPlan& plan);
  static std::vector<Step> chain(const std::vector<std::uint32_t>& ranks, std::uint32_t root,
                                 double bytes);
  static std::vector<Step> star(const std::vector<std::uint32_t>& ranks, std::uint32_t root,
                                const FlowPlan& plan);
  static std::vector<Step> steps_of(const Transfer& transfer,
                                    const std::vector<std::uint32_t>& ranks, const FlowPlan& plan);

  const World& world_;
  scenario::Scenario scenario_;
  CollectiveAlgorithm algorithm_;
  scenario::Topology topology_;
  std::unique_ptr<sim::JobStacks> stacks_;  // outlives the network, which refers to the stacks
  std::optional<sim::Network> network_;
  std::unordered_map<MatchIndex, OpenTransfer> open_;
  std::unordered_map<sim::FlowId, OpenFlow> flows_;
  std::vector<MatchIndex> ended_;
  bool has_ended_ = false;
  base::Instant marked_{};  // time of the event that mark() added
  std::uint32_t next_flow_ = 0;
  std::uint64_t failed_flows_ = 0;
};

}  // namespace spillway::emulate
