// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/incast/rank.h"

#include <fmt/format.h>

#include <fstream>
#include <memory>

#include "base/environment.h"
#include "launch/launch.h"
#include "sim/scenario/scenario.h"
#include "tools/bench/command_error.h"
#include "tools/bench/incast/rank_meeting.h"
#include "tools/bench/incast/spillway_carrier.h"
#include "tools/bench/incast/tcp_carrier.h"

namespace spillway::bench {
namespace {

// This rank's settings from the lab.
struct LabPlace {
  runtime::Launch launch;
  base::BitRate link_rate;
  std::uint32_t trim_bytes = 0;
};

LabPlace lab_place() {
  const base::Environment told = base::Environment::of_process();
  const auto rate = value_or_throw(told.optional_number("SPILLWAY_LINK_RATE"));
  LabPlace place{
      .launch = value_or_throw(runtime::launch_from_environment(told, /*servers=*/0)),
      .link_rate = base::bits_per_second(rate.value_or(0)),
      .trim_bytes = static_cast<std::uint32_t>(value_or_throw(told.number("SPILLWAY_TRIM_BYTES")))};
  if (!rate || place.launch.peers.empty() || !place.launch.listen) {
    throw CommandError(
        "SPILLWAY_LINK_RATE, SPILLWAY_PEERS and SPILLWAY_LISTEN are not all set: ranks are started "
        "by spillway lab");
  }
  return place;
}

std::unique_ptr<FlowCarrier> make_carrier(const scenario::Scenario& scenario,
                                          const IncastRankOptions& options, const LabPlace& place) {
  const CarrierConfig config{place.launch.rank, flows_of(scenario)};
  const std::vector<net::SocketAddress>& peers = place.launch.peers;
  if (options.protocol != "spillway") {
    return std::make_unique<TcpCarrier>(config, TcpCarrierOptions{options.protocol, peers});
  }
  const SpillwayCarrierOptions spillway{.spillway = scenario.jobs.front().spillway,
                                        .link_rate = place.link_rate,
                                        .trim_bytes = place.trim_bytes,
                                        .listen = *place.launch.listen,
                                        .peers = peers};
  return std::make_unique<SpillwayCarrier>(config, spillway);
}

std::filesystem::path rounds_file(const std::filesystem::path& folder) {
  return folder / "rounds";
}

}  // namespace

std::vector<scenario::Flow> flows_of(const scenario::Scenario& scenario) {
  const scenario::Topology topology = value_or_throw(scenario::build_topology(scenario));
  scenario::PatternOptions pattern = scenario.jobs.front().pattern;
  if (scenario.jobs.front().all_hosts) {
    pattern.hosts = topology.hosts() - pattern.first_host;
  }
  std::vector<scenario::Flow> flows;
  for (const scenario::PlannedFlow& planned :
       value_or_throw(scenario::plan_workload(pattern)).flows) {
    if (planned.after_group != scenario::kNoGroup) {
      throw CommandError(
          fmt::format("{}: flows of this pattern wait for each other; use incast, "
                      "permutation or all-to-all",
                      scenario.jobs.front().place));
    }
    flows.push_back(planned.flow);
  }
  return flows;
}

void run_incast_rank(const scenario::Scenario& scenario, const IncastRankOptions& options) {
  const LabPlace place = lab_place();
  const std::uint16_t rank = place.launch.rank;
  const std::unique_ptr<FlowCarrier> carrier = make_carrier(scenario, options, place);
  RankMeeting meeting(rank, place.launch.world, options.folder);
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
  meeting.agree_on_start();  // no rank leaves while another may still need answers
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

}  // namespace spillway::bench
