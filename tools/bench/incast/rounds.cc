// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/incast/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "lab/launcher.h"
#include "lab/network/links.h"
#include "sim/results.h"
#include "sim/simulation.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {
namespace {

// A folder shared by the ranks, removed with this object.
class SharedFolder {
 public:
  SharedFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "spillway-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw CommandError("cannot make a folder in " +
                         std::filesystem::temp_directory_path().string());
    }
    path_ = pattern;
  }
  ~SharedFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// This command, to be run as a rank.
std::vector<std::string> rank_command(const std::string& protocol, const SharedFolder& folder) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) {
    words.push_back(word);
  }
  words.front() = std::filesystem::read_symlink("/proc/self/exe").string();
  words.insert(words.end(), {"--as-rank", protocol, "--rank-folder", folder.path().string()});
  return words;
}

IncastTimes summarise_rounds(const std::string& protocol,
                             const std::vector<std::vector<FlowOutcome>>& rounds) {
  IncastTimes measured;
  measured.protocol = protocol;
  std::vector<base::Duration> times;
  for (const std::vector<FlowOutcome>& round : rounds) {
    std::int64_t longest = 0;
    for (const FlowOutcome& outcome : round) {
      longest = std::max(longest, outcome.nanoseconds);
      ++measured.messages;
      measured.beyond_bound += outcome.within_bound() ? 0 : 1;
      measured.packets += outcome.packets;
      measured.delivered += outcome.delivered;
      measured.trimmed += outcome.trimmed;
    }
    times.push_back(base::nanoseconds(longest));
  }
  measured.rounds = base::summarise(std::move(times));
  return measured;
}

}  // namespace

base::Duration ideal_incast_time(const scenario::Scenario& scenario,
                                 const std::vector<scenario::Flow>& flows) {
  const auto most = static_cast<std::int64_t>(sim::busiest_bytes(flows));
  return base::transmission_time(base::bytes(most), scenario.topology.rate);
}

IncastTimes measure_incast(const lab::LabOptions& lab_options, std::size_t flows,
                           const std::string& protocol, std::uint32_t rounds) {
  const SharedFolder folder;
  const std::size_t hosts =
      value_or_throw(lab::make_host_plan(lab_options.scenario, {.mtu = lab_options.mtu}))
          .hosts.size();
  lab::LabOptions quiet = lab_options;
  quiet.output.out = quiet.output.err;
  quiet.grace = base::seconds(1);
  const std::vector<lab::RankCommand> commands(hosts, {rank_command(protocol, folder), {}});
  const lab::LabOutcome outcome = value_or_throw(lab::run_lab(quiet, commands));
  if (outcome.worst_exit_code() != kExitOk) {
    throw CommandExit{outcome.worst_exit_code()};
  }
  const std::vector<std::vector<FlowOutcome>> measured = read_rounds(folder.path(), flows);
  if (measured.size() != rounds) {
    throw CommandError(
        fmt::format("{}: {} of {} rounds were measured", protocol, measured.size(), rounds));
  }
  IncastTimes times = summarise_rounds(protocol, measured);
  times.pace = outcome.pace;
  return times;
}

base::DurationSummary simulate_incast(scenario::Scenario scenario, std::uint32_t rounds) {
  scenario.jobs.resize(1);
  std::vector<base::Duration> times;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    scenario.seed += 1;
    const base::Result<sim::ScenarioResult> result = sim::run_scenario(scenario);
    if (!result.ok()) {
      throw CommandError(result.status());
    }
    times.push_back(result->jobs.front().makespan);
  }
  return base::summarise(std::move(times));
}

}  // namespace spillway::bench
