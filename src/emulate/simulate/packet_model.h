// SPDX-License-Identifier: Apache-2.0
//
// Communication packet by packet: collectives cut into their flows (collective_cut.h), and the
// flows through the simulator's network with the shipped transport and switch, or TCP, as the
// scenario's `job` line says. The steps of a collective wait for each other as they do in reality:
// a rank of a ring sends on what it has got, an owner hands out its sum when all parts of it are
// there.
//
// For worlds of up to some thousand ranks and small transfers: a packet costs microseconds. Ranks
// stand alone on hosts. Switches that add, and codes, are not among what it does (`spillway sim
// jobs` has them). A flow that the transport gives up is an end with failed_flows().
//
// Made once from a scenario, which it copies. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "emulate/simulate/collective_cut.h"
#include "emulate/simulate/communication_model.h"
#include "scenario/scenario.h"
#include "sim/host_stack.h"
#include "sim/network.h"
#include "sim/stacks/job_stacks.h"

namespace spillway::emulate {

class PacketModel final : public CommunicationModel, private sim::FlowListener {
 public:
  // The scenario's first job says how flows are carried; without one: Spillway as it is, nothing
  // lost.
  static base::Result<std::unique_ptr<PacketModel>> make(const World& world,
                                                         const scenario::Scenario& scenario,
                                                         CutAlgorithm algorithm);

  base::Status begin(const Transfer& transfer, base::Instant now) override;
  base::Instant advance(base::Instant limit, std::vector<MeetingIndex>& ended) override;
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
  // Flows that begin when so many others have ended.
  struct Step {
    std::uint32_t waits_for = 0;
    std::vector<StepFlow> flows;
  };
  struct OpenTransfer {
    std::uint64_t left = 0;  // flows that have not ended
    std::vector<Step> steps;
  };
  struct OpenFlow {
    MeetingIndex meeting = 0;
    std::uint32_t next = kNoStep;
  };

  PacketModel(const World& world, const scenario::Scenario& scenario, CutAlgorithm algorithm);
  base::Status build();
  void on_flow_end(const sim::FlowResult& result, base::Instant now) override;
  void start_flows(MeetingIndex meeting, const std::vector<StepFlow>& flows);
  void mark(base::Instant at);
  // The first step waits for nothing.
  static std::vector<Step> pairs(const std::vector<std::uint32_t>& ranks, const Cut& cut);
  static std::vector<Step> ring(const std::vector<std::uint32_t>& ranks, const Cut& cut);
  static std::vector<Step> chain(const std::vector<std::uint32_t>& ranks, std::uint32_t root,
                                 double bytes);
  static std::vector<Step> star(const std::vector<std::uint32_t>& ranks, std::uint32_t root,
                                const Cut& cut);
  static std::vector<Step> steps_of(const Transfer& transfer,
                                    const std::vector<std::uint32_t>& ranks, const Cut& cut);

  const World& world_;
  scenario::Scenario scenario_;
  CutAlgorithm algorithm_;
  scenario::Topology topology_;
  std::unique_ptr<sim::JobStacks> stacks_;  // outlives the network, which has the stacks
  std::optional<sim::Network> network_;
  std::unordered_map<MeetingIndex, OpenTransfer> open_;
  std::unordered_map<sim::FlowId, OpenFlow> flows_;
  std::vector<MeetingIndex> ended_;
  bool has_ended_ = false;
  base::Instant marked_{};  // until when the clock has something to go to
  std::uint32_t next_flow_ = 0;
  std::uint64_t failed_flows_ = 0;
};

}  // namespace spillway::emulate
