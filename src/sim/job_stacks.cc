// SPDX-License-Identifier: Apache-2.0
#include "sim/job_stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "base/check.h"
#include "wire/packet.h"

namespace spillway::sim {
namespace {

constexpr std::uint32_t kIpUdpBytes = 28;

SpillwayStackConfig spillway_config(const JobSpec& job, const JobSurroundings& surroundings) {
  const SpillwayOptions& options = job.spillway;
  SpillwayStackConfig config;
  config.endpoint.job = static_cast<std::uint16_t>(surroundings.stack + 1);
  config.endpoint.limits = options.limits;
  config.endpoint.tuning = options.tuning;
  config.endpoint.tuning.receive_rate = options.receive_rate.value_or(surroundings.link_rate);
  config.endpoint.congestion = options.congestion;
  config.endpoint.congestion.packet = base::bytes(options.packet_bytes);
  config.packet_bytes = options.packet_bytes;
  config.planes = options.planes;
  config.stack = surroundings.stack;
  config.deadline = options.deadline;
  config.real_bytes = options.real_bytes;
  config.fabric.mtu = options.packet_bytes + kIpUdpBytes;
  config.fabric.trim_bytes = surroundings.trim_bytes;
  config.encoding.planes = options.planes;
  config.encoding.keyed = options.keyed;
  config.job_seed = surroundings.seed;
  config.observer = surroundings.observer;
  return config;
}

wire::PacketAuth make_auth(const JobSpec& job, std::uint64_t seed) {
  if (!job.spillway.keyed) {
    return wire::PacketAuth::crc32c(static_cast<std::uint32_t>(seed));
  }
  std::array<std::uint8_t, wire::PacketAuth::kMinSecretBytes> secret{};
  base::store_le(secret.data(), seed);
  return wire::PacketAuth::keyed(secret).value();
}

}  // namespace

JobStacks::JobStacks(const JobSpec& job, const JobSurroundings& surroundings)
    : index_(surroundings.stack),
      protocol_(job.protocol),
      tcp_config_(job.tcp),
      spillway_config_(spillway_config(job, surroundings)),
      auth_(make_auth(job, surroundings.seed)) {}

base::Status JobStacks::check(const Workload& workload) const {
  if (protocol_ != Protocol::kSpillway) {
    return {};
  }
  if (spillway_config_.real_bytes) {
    // Any length will do: what can be wrong is the fabric or the encoding.
    const base::Result<packetize::PacketPlan> plan =
        packetize::PacketPlan::make(1, spillway_config_.fabric, spillway_config_.encoding);
    if (!plan.ok()) {
      return plan.status();
    }
  }
  const std::uint64_t most = std::uint64_t{payload_bytes(spillway_config_)} * SPILLWAY_MAX_PACKETS;
  for (const PlannedFlow& planned : workload.flows) {
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
    if (protocol_ == Protocol::kSpillway) {
      SpillwayStackConfig config = spillway_config_;
      config.endpoint.rank = static_cast<std::uint16_t>(host);
      auto made = std::make_unique<SpillwayStack>(config, network.pool(), listener, auth_);
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
