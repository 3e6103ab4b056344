// SPDX-License-Identifier: Apache-2.0
//
// A group of ranks in a simulated network, for tests of collectives. Every rank has its own host;
// tests submit operations by rank and read their endings.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "packetize/packet_plan.h"
#include "sim/network.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/topology.h"
#include "sim/stacks/collective_stack.h"
#include "sim/stacks/tenants.h"

namespace spillway::sim {

struct SimulatedGroupOptions {
  std::uint16_t ranks = 4;
  std::uint16_t servers = 0;  // the last ones of `ranks`
  base::BitRate rate = base::gigabits_per_second(10);
  // Links, switches and tenants; ranks are on the first hosts. Empty: one switch, no tenants.
  std::string scenario{};
  std::uint64_t seed = 1;
  unsigned trim_bytes = 206;
  double cut_share = 0.0;        // share of data packets that arrive cut, as by a full switch
  double expendable_loss = 0.0;  // share dropped of packets below SPILLWAY_IMPORTANCE_MARKED
  collective::PlanOptions plan = {.piece_bytes = 64 * 1024, .window = 4, .message_bytes = 1 << 20};
  collective::ShareRule shares = collective::ShareRule::kAutomatic;
  collective::ChunkRule coded_chunks = collective::ChunkRule::kStriped;
  std::optional<std::uint16_t> wants_equal_shares{};  // this rank always uses equal shares
  collective::EngineLimits limits{};
  transport::EndpointLimits tables = {.outgoing_messages = 16384,
                                      .incoming_messages = 16384,
                                      .finished_kept = 4096,
                                      .early_bytes = 1 << 20};
  // Initial values of counters and the epoch.
  std::uint64_t first_number = 0;
  std::uint64_t first_operation = 0;
  std::uint64_t epoch = 1;
  // By rank: the memory it shares with others, as on one machine. Must outlive the group.
  std::vector<collective::PeerMemory*> memories{};
};

// The end of an operation at one rank.
struct Ending {
  std::uint64_t token = 0;
  base::Status status;
  collective::OperationReport report;
};

// Returns the operation with these buffers.
inline collective::Operation on_buffers(collective::Operation operation, const void* input,
                                        void* output) {
  operation.input = input;
  operation.output = output;
  return operation;
}

// Wraps a stack: cuts arriving data packets and drops expendable ones, at random.
class CuttingStack final : public HostStack {
 public:
  CuttingStack(std::unique_ptr<HostStack> behind, PacketPool& pool,
               const SimulatedGroupOptions& options, std::uint64_t seed)
      : behind_(std::move(behind)),
        pool_(pool),
        share_(options.cut_share),
        expendable_loss_(options.expendable_loss),
        bytes_(options.trim_bytes),
        random_(seed) {}

  void expect_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_packet(Packet& packet, base::Instant now) override {
    if (packet.kind == PacketKind::kSpillwayData &&
        packet.importance < SPILLWAY_IMPORTANCE_MARKED && random_.next_unit() < expendable_loss_) {
      return;
    }
    if (packet.kind == PacketKind::kSpillwayData && packet.bytes > bytes_ &&
        random_.next_unit() < share_) {
      pool_.trim(packet, bytes_);
    }
    behind_->on_packet(packet, now);
  }
  void on_timeout(base::Instant now) override { behind_->on_timeout(now); }
  base::Instant next_timeout() const override { return behind_->next_timeout(); }
  bool poll_transmit(base::Instant now, Packet& packet) override {
    return behind_->poll_transmit(now, packet);
  }

 private:
  std::unique_ptr<HostStack> behind_;
  PacketPool& pool_;
  double share_;
  double expendable_loss_;
  unsigned bytes_;
  base::RandomSequence random_;
};

class SimulatedGroup {
 public:
  explicit SimulatedGroup(const SimulatedGroupOptions& options)
      : options_(options),
        job_{.id = 7, .epoch = options.epoch, .seed = 42},
        scenario_(scenario::parse_scenario(options.scenario).value()),
        topology_(options.scenario.empty()
                      ? scenario::one_switch({.hosts = options.ranks, .rate = options.rate}).value()
                      : scenario::build_topology(scenario_).value()),
        network_(topology_, options.seed),
        endings_(options.ranks) {
    for (std::uint16_t rank = 0; rank < options.ranks; ++rank) {
      auto stack =
          CollectiveStack::make(config(rank), network_.pool(),
                                [this, rank](std::uint64_t token, const base::Status& status,
                                             const collective::OperationReport& report) {
                                  endings_[rank].push_back({token, status, report});
                                  ++ended_;
                                  if (on_ending_) {
                                    on_ending_(rank, endings_[rank].back());
                                  }
                                })
              .value();
      stacks_.push_back(stack.get());
      network_.add_stack(rank, std::make_unique<CuttingStack>(std::move(stack), network_.pool(),
                                                              options, options.seed + rank));
    }
    const base::Status status = tenants_.add_to(network_, topology_, scenario_.tenants);
    SPILLWAY_CHECK(status.ok());
  }

  Network& network() { return network_; }
  CollectiveStack& stack(std::uint16_t rank) { return *stacks_[rank]; }
  const std::vector<Ending>& endings(std::uint16_t rank) const { return endings_[rank]; }

  // `call` runs after every ending and may submit.
  void on_ending(std::function<void(std::uint16_t, const Ending&)> call) {
    on_ending_ = std::move(call);
  }
  base::Status submit(std::uint16_t rank, const collective::Operation& operation,
                      std::uint64_t token = 0) {
    base::Status status = stacks_[rank]->submit(operation, token, network_.now());
    network_.wake(rank);
    return status;
  }
  // Submits at a later time.
  void submit_at(base::Instant when, std::uint16_t rank, const collective::Operation& operation,
                 std::uint64_t token = 0) {
    network_.at(when, [this, rank, operation, token](base::Instant) {
      static_cast<void>(submit(rank, operation, token));
    });
  }

  // The rank is done and leaves.
  void leave(std::uint16_t rank) {
    stacks_[rank]->leave();
    network_.wake(rank);
  }

  // Runs until `operations` have ended, counted over all ranks, or the limit is reached.
  bool run(std::size_t operations, base::Duration limit = base::seconds(60)) {
    const base::Instant end = network_.now() + limit;
    while (ended_ < operations && network_.now() < end && network_.next_time()) {
      network_.run_until(std::min(end, *network_.next_time()));
    }
    return ended_ >= operations;
  }

 private:
  CollectiveStackConfig config(std::uint16_t rank) const {
    CollectiveStackConfig config;
    config.engine.group = {rank, options_.ranks, options_.servers};
    config.engine.job = job_;
    config.engine.first_operation = options_.first_operation;
    config.engine.packet_limits = {.mtu = 1500, .trim_bytes = options_.trim_bytes};
    config.engine.plan = options_.plan;
    config.engine.shares =
        options_.wants_equal_shares == rank ? collective::ShareRule::kEqual : options_.shares;
    config.engine.coded_chunks = options_.coded_chunks;
    config.engine.limits = options_.limits;
    config.engine.memory = options_.memories.empty() ? nullptr : options_.memories[rank];
    config.endpoint.job = job_.id;
    config.endpoint.epoch = job_.epoch;
    config.endpoint.rank = rank;
    config.endpoint.first_number = options_.first_number;
    config.endpoint.reports_unexpected = true;
    config.endpoint.exchange.receive_rate = options_.rate;
    config.endpoint.limits = options_.tables;
    config.endpoint.limits.peers = options_.ranks;
    return config;
  }

  SimulatedGroupOptions options_;
  packetize::Job job_;
  scenario::Scenario scenario_;
  scenario::Topology topology_;
  Tenants tenants_;  // outlives the network, which owns its stacks
  Network network_;
  std::vector<CollectiveStack*> stacks_;
  std::vector<std::vector<Ending>> endings_;
  std::size_t ended_ = 0;
  std::function<void(std::uint16_t, const Ending&)> on_ending_;
};

}  // namespace spillway::sim
