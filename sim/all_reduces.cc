// SPDX-License-Identifier: Apache-2.0
#include "sim/all_reduces.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "base/random.h"
#include "collective/reduction.h"
#include "sim/network.h"
#include "sim/stacks/collective_stack.h"
#include "sim/stacks/host_memory.h"
#include "sim/stacks/tenants.h"
#include "switch/dataplane/admission.h"

namespace spillway::sim {
namespace {

using collective::Operation;

constexpr std::uint16_t kJob = 7;

class AllReduces {
 public:
  AllReduces(const AllReducesSetting& setting, scenario::Topology topology)
      : setting_(setting),
        topology_(std::move(topology)),
        network_(topology_, setting.scenario.seed),
        inputs_(setting.ranks),
        outputs_(setting.ranks),
        memory_(setting.ranks, setting.ranks_per_host) {
    base::RandomSequence random(setting.scenario.seed);
    const std::size_t width = element_size(setting.type);
    for (std::uint16_t rank = 0; rank < setting.ranks; ++rank) {
      inputs_[rank].resize(setting.values * width);
      outputs_[rank].resize(setting.values * width);
      const std::size_t first = setting.gradient.size() / setting.ranks * rank;
      for (std::size_t i = 0; i < setting.values; ++i) {
        const float value = setting.gradient.empty()
                                ? static_cast<float>(random.next_gaussian())
                                : setting.gradient[(first + i) % setting.gradient.size()];
        store(value, inputs_[rank].data() + i * width);
      }
    }
  }

  base::Status prepare();
  base::Result<AllReducesResult> run();

 private:
  void store(float value, std::uint8_t* to) const;
  scenario::HostId host_of(std::uint16_t rank) const { return rank / setting_.ranks_per_host; }
  std::vector<std::uint64_t> nic_bytes() const;
  CollectiveStackConfig config_of(std::uint16_t rank);
  void on_end(const base::Status& status, const collective::OperationReport& report);
  base::Status run_one();

  const AllReducesSetting& setting_;
  scenario::Topology topology_;
  Tenants tenants_;  // outlives the network, which owns its stacks
  Network network_;
  std::vector<CollectiveStack*> stacks_;
  std::vector<std::vector<std::uint8_t>> inputs_;
  std::vector<std::vector<std::uint8_t>> outputs_;
  GroupMemory memory_;
  std::size_t ended_ = 0;
  base::Status failure_;
  AllReducesResult result_;
};

void AllReduces::store(float value, std::uint8_t* to) const {
  switch (setting_.type) {
    case collective::DataType::kFloat16:
      base::store_le(to, collective::float_to_float16(value));
      break;
    case collective::DataType::kBfloat16:
      base::store_le(to, collective::float_to_bfloat16(value));
      break;
    default:
      base::store_le(to, value);
      break;
  }
}

std::vector<std::uint64_t> AllReduces::nic_bytes() const {
  std::vector<std::uint64_t> bytes;
  for (std::uint16_t rank = 0; rank < setting_.ranks; rank += setting_.ranks_per_host) {
    bytes.push_back(network_.nic_bytes(host_of(rank)));
  }
  return bytes;
}

CollectiveStackConfig AllReduces::config_of(std::uint16_t rank) {
  CollectiveStackConfig config;
  const scenario::HostId host = host_of(rank);
  config.engine.group = {rank, setting_.ranks};
  if (setting_.ranks_per_host > 1) {
    config.engine.hosts = hosts_of(setting_.ranks, setting_.ranks_per_host);
    config.engine.memory = &memory_.of(rank);
    config.ranks_per_host = setting_.ranks_per_host;
  }
  config.engine.job = {.id = kJob, .epoch = 1, .seed = setting_.scenario.seed};
  const spillway_port_config& port = topology_.links.front().port;
  config.engine.packet_limits = {
      .mtu = 1500, .trim_bytes = spillway_port_trims(&port) != 0 ? port.trim_bytes : 0};
  config.endpoint.job = kJob;
  config.endpoint.epoch = 1;
  config.endpoint.rank = rank;
  config.endpoint.reports_unexpected = true;
  config.endpoint.exchange.receive_rate = topology_.host_rate(host);
  config.endpoint.limits.peers = setting_.ranks;
  return config;
}

base::Status AllReduces::prepare() {
  result_.rate = topology_.host_rate(0);
  for (std::uint16_t rank = 0; rank < setting_.ranks; ++rank) {
    result_.rate = std::min(result_.rate, topology_.host_rate(host_of(rank)));
    base::Result<std::unique_ptr<CollectiveStack>> stack = CollectiveStack::make(
        config_of(rank), network_.pool(),
        [this](std::uint64_t, const base::Status& status,
               const collective::OperationReport& report) { on_end(status, report); });
    if (!stack.ok()) {
      return stack.status();
    }
    stacks_.push_back(stack->get());
    network_.add_stack(host_of(rank), std::move(stack).value());
  }
  for (const scenario::Fault& fault : setting_.scenario.faults) {
    if (base::Status status = network_.add_fault(fault); !status.ok()) {
      return status;
    }
  }
  return tenants_.add_to(network_, topology_, setting_.scenario.tenants);
}

void AllReduces::on_end(const base::Status& status, const collective::OperationReport& report) {
  ++ended_;
  result_.algorithm = report.algorithm;
  result_.code.plain_bytes += report.code.plain_bytes;
  result_.code.bytes += report.code.bytes;
  result_.wire_bytes += report.wire_bytes_sent;
  if (report.entropy.values() > 0) {
    result_.coded_bits = 8.0 * static_cast<double>(report.entropy.bytes()) /
                         static_cast<double>(report.entropy.values());
  }
  if (!status.ok() && failure_.ok()) {
    failure_ = status;
  }
}

base::Status AllReduces::run_one() {
  const base::Instant begun = network_.now();
  ended_ = 0;
  result_.wire_bytes = 0;
  for (std::uint16_t rank = 0; rank < setting_.ranks; ++rank) {
    Operation operation;
    operation.type = setting_.type;
    operation.count = setting_.values;
    operation.algorithm = setting_.algorithm;
    operation.tolerance = setting_.tolerance;
    operation.input = inputs_[rank].data();
    operation.output = outputs_[rank].data();
    if (base::Status status = stacks_[rank]->submit(operation, 0, begun); !status.ok()) {
      return status;
    }
    network_.wake(host_of(rank));
  }
  const base::Instant limit = begun + setting_.scenario.limit;
  while (ended_ < setting_.ranks && failure_.ok() && network_.next_time()) {
    if (*network_.next_time() > limit) {
      return {base::StatusCode::kTimedOut, "an all-reduce reached the scenario's limit of time"};
    }
    network_.run_until(*network_.next_time());
  }
  result_.times.push_back(network_.now() - begun);
  return failure_;
}

base::Result<AllReducesResult> AllReduces::run() {
  const unsigned first_half = setting_.count / 2;
  std::vector<std::uint64_t> before = nic_bytes();
  for (unsigned i = 0; i < setting_.count; ++i) {
    if (i == first_half) {
      before = nic_bytes();
    }
    if (base::Status status = run_one(); !status.ok()) {
      return status;
    }
  }
  const std::vector<std::uint64_t> after = nic_bytes();
  for (std::size_t host = 0; host < after.size(); ++host) {
    result_.busiest_nic_bytes =
        std::max(result_.busiest_nic_bytes,
                 static_cast<double>(after[host] - before[host]) / (setting_.count - first_half));
  }
  for (const CollectiveStack* stack : stacks_) {
    const transport::EndpointCounters& counters = stack->endpoint().counters();
    result_.data_packets += counters.data_sent;
    result_.repeated_packets += counters.data_resent;
    result_.control_packets += counters.control_sent;
  }
  return result_;
}

}  // namespace

base::Duration AllReducesResult::median() const {
  std::vector<base::Duration> late(times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                                   times.end());
  std::sort(late.begin(), late.end());
  return late.empty() ? base::Duration() : late[late.size() / 2];
}

base::Result<AllReducesResult> run_all_reduces(const AllReducesSetting& setting) {
  base::Result<scenario::Topology> topology = scenario::build_topology(setting.scenario);
  if (!topology.ok()) {
    return topology.status();
  }
  if (setting.tolerance && setting.type != collective::DataType::kFloat32) {
    return base::invalid_argument("tolerant all-reduces are simulated with float32 alone");
  }
  const std::uint32_t per_host = setting.ranks_per_host;
  if (per_host == 0 || per_host > kMaxStacks / 2 || setting.ranks % per_host != 0) {
    return base::invalid_argument(
        fmt::format("{} ranks do not fit on hosts of {} each; use a multiple of at most {}",
                    setting.ranks, per_host, kMaxStacks / 2));
  }
  if (setting.ranks < 2 || setting.ranks > topology->hosts() * per_host) {
    return base::invalid_argument(fmt::format("{} ranks do not fit {} hosts; use 2 to {}",
                                              setting.ranks, topology->hosts(),
                                              topology->hosts() * per_host));
  }
  AllReduces all_reduces(setting, std::move(topology).value());
  if (base::Status status = all_reduces.prepare(); !status.ok()) {
    return status;
  }
  return all_reduces.run();
}

}  // namespace spillway::sim
