// SPDX-License-Identifier: Apache-2.0
#include "cli/incast_rank.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "cli/command_error.h"
#include "cli/rank_meeting.h"
#include "cli/spillway_carrier.h"
#include "cli/tcp_carrier.h"
#include "sim/simulation.h"

namespace spillway::cli {
namespace {

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) {
    throw CommandError(fmt::format("{} is not set: ranks are started by spillway lab", name));
  }
  return value;
}

std::uint64_t number_variable(const char* name) {
  const char* text = variable(name);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc() || *end != '\0') {
    throw CommandError(fmt::format("{} is '{}', not a number", name, text));
  }
  return value;
}

std::unique_ptr<FlowCarrier> make_carrier(const sim::Scenario& scenario,
                                          const IncastRankOptions& options,
                                          const CarrierSetting& setting) {
  const std::vector<net::SocketAddress> peers =
      value_or_throw(net::parse_addresses(variable("SPILLWAY_PEERS")));
  if (options.protocol != "spillway") {
    return std::make_unique<TcpCarrier>(setting, TcpCarrierOptions{options.protocol, peers});
  }
  const SpillwayCarrierOptions spillway{
      .spillway = scenario.jobs.front().spillway,
      .link_rate =
          base::bits_per_second(static_cast<std::int64_t>(number_variable("SPILLWAY_LINK_RATE"))),
      .trim_bytes = static_cast<std::uint32_t>(number_variable("SPILLWAY_TRIM_BYTES")),
      .listen = value_or_throw(net::SocketAddress::parse(variable("SPILLWAY_LISTEN"))),
      .peers = peers};
  return std::make_unique<SpillwayCarrier>(setting, spillway);
}

std::filesystem::path rounds_file(const std::filesystem::path& folder) {
  return folder / "rounds";
}

}  // namespace

std::vector<sim::Flow> flows_of(const sim::Scenario& scenario) {
  const sim::Topology topology = value_or_throw(sim::build_topology(scenario));
  sim::PatternOptions pattern = scenario.jobs.front().pattern;
  if (scenario.jobs.front().all_hosts) {
    pattern.hosts = topology.hosts() - pattern.first_host;
  }
  std::vector<sim::Flow> flows;
  for (const sim::PlannedFlow& planned : value_or_throw(sim::plan_workload(pattern)).flows) {
    if (planned.after_group != sim::kNone) {
      throw CommandError(
          fmt::format("{}: flows of this pattern wait for each other; use incast, "
                      "permutation or all-to-all",
                      scenario.jobs.front().place));
    }
    flows.push_back(planned.flow);
  }
  return flows;
}

void run_incast_rank(const sim::Scenario& scenario, const IncastRankOptions& options) {
  const auto rank = static_cast<std::uint16_t>(number_variable("RANK"));
  const auto ranks = static_cast<std::uint16_t>(number_variable("WORLD_SIZE"));
  const std::unique_ptr<FlowCarrier> carrier =
      make_carrier(scenario, options, {rank, flows_of(scenario)});
  RankMeeting meeting(rank, ranks, options.folder);
  std::vector<FlowOutcome> all;
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    carrier->prepare(round);
    const std::vector<FlowOutcome> own = carrier->carry(round, meeting.agree_on_start());
    const std::vector<FlowOutcome> gathered = meeting.gather(own);
    all.insert(all.end(), gathered.begin(), gathered.end());
  }
  if (rank == 0) {
    std::ofstream file(rounds_file(options.folder), std::ios::binary);
    file.write(reinterpret_cast<const char*>(all.data()),
               static_cast<std::streamsize>(all.size() * sizeof(FlowOutcome)));
  }
  meeting.agree_on_start();  // nobody leaves while another may still be answered
}

std::vector<std::vector<FlowOutcome>> read_rounds(const std::filesystem::path& folder,
                                                  std::size_t flows) {
  std::ifstream file(rounds_file(folder), std::ios::binary);
  std::vector<std::vector<FlowOutcome>> rounds;
  std::vector<FlowOutcome> round(flows);
  while (file.read(reinterpret_cast<char*>(round.data()),
                   static_cast<std::streamsize>(flows * sizeof(FlowOutcome)))) {
    rounds.push_back(round);
  }
  return rounds;
}

}  // namespace spillway::cli
