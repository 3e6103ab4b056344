// SPDX-License-Identifier: Apache-2.0
#include "sim/stacks/job_stacks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "wire/frame_overhead.h"
#include "wire/packet.h"

namespace spillway::sim {
namespace {

SpillwayStackConfig spillway_config(const scenario::Job& job, const JobSurroundings& surroundings) {
  const scenario::SpillwayOptions& options = job.spillway;
  SpillwayStackConfig config;
  config.endpoint.job = static_cast<std::uint16_t>(surroundings.stack + 1);
  config.endpoint.first_number = options.first_number;
  config.endpoint.limits = options.limits;
  config.endpoint.exchange = options.exchange;
  config.endpoint.exchange.receive_rate = options.receive_rate.value_or(surroundings.link_rate);
  config.endpoint.congestion = options.congestion;
  config.endpoint.congestion.packet = base::bytes(options.packet_bytes);
  config.packet_bytes = options.packet_bytes;
  config.precision = options.precision;
  config.stack = surroundings.stack;
  config.deadline = options.deadline;
  config.real_bytes = options.real_bytes;
  config.packet_limits.mtu = options.packet_bytes + spillway_datagram_overhead(0);
  config.packet_limits.trim_bytes = surroundings.trim_bytes;
  config.encoding.precision = options.precision;
  config.job_seed = surroundings.seed;
  config.session.protection = options.protection;
  base::store_le(config.session.key.bytes.data(), surroundings.seed);
  config.observer = surroundings.observer;
  return config;
}

}  // namespace

JobStacks::JobStacks(const scenario::Job& job, const JobSurroundings& surroundings)
    : index_(surroundings.stack),
      protocol_(job.protocol),
      tcp_config_(job.tcp),
      spillway_config_(spillway_config(job, surroundings)) {}

base::Status JobStacks::check(const scenario::Workload& workload) const {
  if (protocol_ != scenario::Protocol::kSpillway) {
    return {};
  }
  if (spillway_config_.real_bytes) {
    // Any length will do: only the limits or the encoding can be wrong.
    const base::Result<packetize::PacketPlan> plan =
        packetize::PacketPlan::make(1, spillway_config_.packet_limits, spillway_config_.encoding);
    if (!plan.ok()) {
      return plan.status();
    }
  }
  const std::uint64_t most = std::uint64_t{payload_bytes(spillway_config_)} * SPILLWAY_MAX_PACKETS;
  for (const scenario::PlannedFlow& planned : workload.flows) {
    if (planned.flow.bytes > most) {
      return {base::StatusCode::kLimitExceeded,
              fmt::format("a flow of {} bytes is more than the {} a Spillway message of {}-byte "
                          "packets holds: use more layers or larger packets",
                          planned.flow.bytes, most, spillway_config_.packet_bytes)};
    }
  }
  return {};
}

void JobStacks::add_stacks_to(Network& network, FlowListener& listener) {
  for (HostId host = 0; host < network.hosts(); ++host) {
    std::unique_ptr<HostStack> stack;
    if (protocol_ == scenario::Protocol::kSpillway) {
      SpillwayStackConfig config = spillway_config_;
      config.endpoint.rank = static_cast<std::uint16_t>(host);
      auto made = std::make_unique<SpillwayStack>(config, network.pool(), listener);
      spillway_.push_back(made.get());
      stack = std::move(made);
    } else {
      auto made = std::make_unique<TcpStack>(tcp_config_, index_, listener);
      tcp_.push_back(made.get());
      stack = std::move(made);
    }
    SPILLWAY_CHECK(network.add_stack(host, std::move(stack)) == index_);
  }
}

StackTotals JobStacks::totals() const {
  StackTotals totals;
  for (const TcpStack* stack : tcp_) {
    const TcpCounters counters = stack->counters();
    totals.data_sent += counters.segments_sent;
    totals.data_resent += counters.retransmissions;
    totals.timeouts += counters.timeouts;
    totals.probes += counters.tail_probes;
    totals.marked += counters.marked;
  }
  for (const SpillwayStack* stack : spillway_) {
    const transport::EndpointCounters& counters = stack->endpoint().counters();
    totals.data_sent += counters.data_sent;
    totals.data_resent += counters.data_resent;
    totals.probes += counters.probes_sent;
    totals.marked += counters.marked;
    totals.trimmed += counters.trimmed;
    totals.worst_error = std::max(totals.worst_error, stack->worst_error());
  }
  return totals;
}

}  // namespace spillway::sim
