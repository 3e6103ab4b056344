// SPDX-License-Identifier: Apache-2.0
//
// A group of ranks in a simulated network, for tests of collectives. Every rank has its own host,
// unless hosts hold several; tests submit operations by rank and read their endings.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
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
#include "sim/stacks/host_memory.h"
#include "sim/stacks/tenants.h"

namespace spillway::sim {

struct SimulatedGroupOptions {
  std::uint16_t ranks = 4;
  std::uint16_t servers = 0;         // the last ones of `ranks`
  std::uint16_t ranks_per_host = 1;  // numbered host by host; they share memory
  // Where engines are told that ranks share hosts, without memory or a link in common.
  collective::Hosts hosts{};
  base::BitRate rate = base::gigabits_per_second(10);
  // Links, switches and tenants; ranks are on the first hosts. Empty: one switch, no tenants.
  std::string scenario{};
  std::uint64_t seed = 1;
  unsigned trim_bytes = 206;
  double cut_share = 0.0;        // share of data packets that arrive cut, as by a full switch
  double expendable_loss = 0.0;  // share dropped of packets below SPILLWAY_IMPORTANCE_MARKED
  collective::PlanOptions plan = {.piece_bytes = 64 * 1024, .window = 4, .message_bytes = 1 << 20};
  collective::ShareRule shares = collective::ShareRule::kAutomatic;
  collective::ChunkRule entropy_chunks = collective::ChunkRule::kStriped;
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
                      ? scenario::one_switch({.hosts = static_cast<std::uint32_t>(
                                                  options.ranks / options.ranks_per_host),
                                              .rate = options.rate})
                            .value()
                      : scenario::build_topology(scenario_).value()),
        network_(topology_, options.seed),
        memory_(options.ranks, options.ranks_per_host),
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
      network_.add_stack(host_of(rank),
                         std::make_unique<CuttingStack>(std::move(stack), network_.pool(), options,
                                                        options.seed + rank));
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
    network_.wake(host_of(rank));
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
    network_.wake(host_of(rank));
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
  scenario::HostId host_of(std::uint16_t rank) const { return rank / options_.ranks_per_host; }
  CollectiveStackConfig config(std::uint16_t rank) {
    CollectiveStackConfig config;
    config.engine.group = {rank, options_.ranks, options_.servers};
    config.engine.job = job_;
    config.engine.first_operation = options_.first_operation;
    config.engine.packet_limits = {.mtu = 1500, .trim_bytes = options_.trim_bytes};
    config.engine.plan = options_.plan;
    config.engine.shares =
        options_.wants_equal_shares == rank ? collective::ShareRule::kEqual : options_.shares;
    config.engine.entropy_chunks = options_.entropy_chunks;
    config.engine.limits = options_.limits;
    config.engine.memory = options_.memories.empty() ? nullptr : options_.memories[rank];
    config.engine.hosts = options_.hosts;
    if (options_.ranks_per_host > 1) {
      config.engine.memory = &memory_.of(rank);
      config.engine.hosts = hosts_of(options_.ranks, options_.ranks_per_host);
      config.ranks_per_host = options_.ranks_per_host;
    }
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
  GroupMemory memory_;
  std::vector<CollectiveStack*> stacks_;
  std::vector<std::vector<Ending>> endings_;
  std::size_t ended_ = 0;
  std::function<void(std::uint16_t, const Ending&)> on_ending_;
};

// For tests of tolerant all-reduces in the simulated network: gradients, faults, steps.

// Gradients of all ranks: a common part plus noise.
struct Gradients {
  Gradients(std::uint16_t ranks, std::size_t count, std::uint64_t seed, double noise = 0.5) {
    base::RandomSequence random(seed);
    std::vector<float> common(count);
    for (float& value : common) {
      value = static_cast<float>(random.next_gaussian());
    }
    mean.resize(count);
    std::vector<double> sum(count);
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      std::vector<float>& own = input.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) {
        own[i] = common[i] + static_cast<float>(noise * random.next_gaussian());
        sum[i] += own[i];
      }
      output.emplace_back(count);
    }
    for (std::size_t i = 0; i < count; ++i) {
      mean[i] = static_cast<float>(sum[i] / ranks);
    }
  }

  collective::Operation at(std::uint16_t rank, const collective::Operation& operation) {
    return on_buffers(operation, input[rank].data(), output[rank].data());
  }

  std::vector<std::vector<float>> input;
  std::vector<std::vector<float>> output;
  std::vector<float> mean;
};

inline collective::Operation tolerant(std::size_t count,
                                      const collective::Tolerance& tolerance = {}) {
  collective::Operation operation;
  operation.count = count;
  operation.op = collective::ReduceOp::kAverage;
  operation.tolerance = tolerance;
  return operation;
}

inline void add_fault(SimulatedGroup& group, const std::string& link, scenario::FaultKind kind,
                      double share, base::Instant from = {},
                      base::Instant until = transport::kNever) {
  scenario::Fault fault;
  fault.kind = kind;
  fault.link = link;
  fault.share = share;
  fault.from = from;
  fault.until = until;
  ASSERT_TRUE(group.network().add_fault(fault).ok()) << link;
}

inline std::string up_link(std::uint16_t rank) {
  return "host" + std::to_string(rank) + "->switch0";
}
inline std::string down_link(std::uint16_t rank) {
  return "switch0->host" + std::to_string(rank);
}

inline void lose_everywhere(SimulatedGroup& group, std::uint16_t ranks, double share) {
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    for (const std::string& link :
         {"host" + std::to_string(rank) + "->switch0", "switch0->host" + std::to_string(rank)}) {
      scenario::Fault fault;
      fault.kind = scenario::FaultKind::kLoss;
      fault.link = link;
      fault.share = share;
      ASSERT_TRUE(group.network().add_fault(fault).ok()) << link;
    }
  }
}

inline void run_once(SimulatedGroup& group, Gradients& gradients,
                     const collective::Operation& operation, std::uint16_t ranks,
                     std::size_t ended_before = 0) {
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    ASSERT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
  }
  ASSERT_TRUE(group.run(ended_before + ranks));
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    const base::Status& status = group.endings(rank).back().status;
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

// For tests of coded all-reduces in the simulated network: repeats an operation and reports its
// cost.

inline SimulatedGroupOptions entropy_group_of(
    std::uint16_t ranks, collective::ChunkRule rule = collective::ChunkRule::kStriped) {
  SimulatedGroupOptions options;
  options.ranks = ranks;
  options.entropy_chunks = rule;
  return options;
}

inline void expect_same_bits(const Gradients& gradients) {
  for (const std::vector<float>& output : gradients.output) {
    ASSERT_TRUE(std::ranges::equal(output, gradients.output[0], {},
                                   std::bit_cast<std::uint32_t, float>,
                                   std::bit_cast<std::uint32_t, float>));
  }
}

inline double largest_error(const Gradients& gradients) {
  double largest = 0.0;
  for (std::size_t i = 0; i < gradients.mean.size(); ++i) {
    largest = std::max<double>(largest, std::abs(gradients.output[0][i] - gradients.mean[i]));
  }
  return largest;
}

// The error that a rank gets for such a request.
inline std::string refusal_of(const collective::Tolerance& tolerance,
                              collective::Algorithm algorithm) {
  SimulatedGroup group(entropy_group_of(3));
  Gradients gradients(3, 100, 10);
  collective::Operation operation = tolerant(100, tolerance);
  operation.algorithm = algorithm;
  return group.submit(0, gradients.at(0, operation)).message();
}

// Repeats an operation at all ranks; each rank has its own tolerance, and so its own tensor name.
class EntropySteps {
 public:
  EntropySteps(SimulatedGroup& group, Gradients& gradients, collective::Algorithm algorithm)
      : group_(group), gradients_(gradients), algorithm_(algorithm) {}

  void step(const std::vector<collective::Tolerance>& tolerances) {
    const std::size_t ranks = gradients_.input.size();
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      collective::Operation operation =
          tolerant(gradients_.mean.size(), tolerances[rank % tolerances.size()]);
      operation.algorithm = algorithm_;
      ASSERT_TRUE(group_.submit(rank, gradients_.at(rank, operation)).ok());
    }
    ended_ += ranks;
    ASSERT_TRUE(group_.run(ended_)) << "it hangs";
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      const Ending& ending = group_.endings(rank).back();
      ASSERT_TRUE(ending.status.ok()) << ending.status.message();
    }
    expect_same_bits(gradients_);
  }

  std::uint64_t tables() const {
    std::uint64_t tables = 0;
    for (std::uint16_t rank = 0; rank < gradients_.input.size(); ++rank) {
      tables += group_.endings(rank).back().report.entropy.tables();
    }
    return tables;
  }
  // Bits per value, over all ranks' sums of this many ranks' values.
  double bits_of(std::uint16_t ranks) const {
    std::uint64_t bytes = 0;
    std::uint64_t values = 0;
    for (std::uint16_t rank = 0; rank < gradients_.input.size(); ++rank) {
      for (const collective::EntropyStep& step : group_.endings(rank).back().report.entropy.steps) {
        bytes += step.ranks == ranks ? step.bytes : 0;
        values += step.ranks == ranks ? step.values : 0;
      }
    }
    return 8.0 * static_cast<double>(bytes) / static_cast<double>(values);
  }

  // Bytes of one rank.
  std::uint64_t bytes() const { return group_.endings(0).back().report.entropy.bytes(); }

 private:
  SimulatedGroup& group_;
  Gradients& gradients_;
  collective::Algorithm algorithm_;
  std::size_t ended_ = 0;
};

}  // namespace spillway::sim
