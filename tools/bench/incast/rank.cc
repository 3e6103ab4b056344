// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/incast/rounds.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/units.h"
#include "launch/launch.h"
#include "net/system_call.h"
#include "sim/scenario/scenario.h"
#include "tools/bench/command_error.h"
#include "tools/bench/incast/carriers.h"

namespace spillway::bench {
namespace {

// ------------------------------------------------------------------ the meeting of the ranks

// Lets the ranks of a measurement agree on the start of a round, and rank 0 collect the results.
// Uses a Unix socket in a shared folder, outside the measured network. Blocking; throws
// CommandError when another rank is gone.

class RankMeeting {
 public:
  RankMeeting(std::uint16_t rank, std::uint16_t ranks, const std::filesystem::path& folder);

  // Waits until all ranks are here. Returns the same instant to all, slightly in the future.
  base::Instant agree_on_start();
  // Sends the outcomes to rank 0, which returns those of all ranks; other ranks return none.
  std::vector<FlowOutcome> gather(const std::vector<FlowOutcome>& own);

 private:
  void accept_others(const std::filesystem::path& path, std::uint16_t others);
  void join(const std::filesystem::path& path);

  std::uint16_t rank_;
  std::vector<net::UniqueFd> streams_;  // rank 0: to each other rank; others: to rank 0
};

// Longer than it takes to tell all ranks.
constexpr base::Duration kHeadStart = base::milliseconds(5);
constexpr int kJoinAttempts = 2000;  // a few milliseconds apart

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.size() >= sizeof(address.sun_path)) {
    throw CommandError("the path of the ranks' socket is too long: set TMPDIR to a shorter one");
  }
  std::copy(text.begin(), text.end(), address.sun_path);
  return address;
}

template <typename T>
void write_all(const net::UniqueFd& stream, const T* items, std::size_t count) {
  const char* data = reinterpret_cast<const char*>(items);
  for (std::size_t left = count * sizeof(T); left > 0;) {
    const ssize_t written = ::send(stream.get(), data, left, MSG_NOSIGNAL);
    if (written <= 0) {
      throw CommandError("another rank is gone");
    }
    data += written;
    left -= static_cast<std::size_t>(written);
  }
}

template <typename T>
void read_all(const net::UniqueFd& stream, T* items, std::size_t count) {
  char* data = reinterpret_cast<char*>(items);
  for (std::size_t left = count * sizeof(T); left > 0;) {
    const ssize_t got = ::recv(stream.get(), data, left, 0);
    if (got <= 0) {
      throw CommandError("another rank is gone");
    }
    data += got;
    left -= static_cast<std::size_t>(got);
  }
}

RankMeeting::RankMeeting(std::uint16_t rank, std::uint16_t ranks,
                         const std::filesystem::path& folder)
    : rank_(rank) {
  const std::filesystem::path path = folder / "meeting";
  if (rank == 0) {
    accept_others(path, static_cast<std::uint16_t>(ranks - 1));
  } else {
    join(path);
  }
}

void RankMeeting::accept_others(const std::filesystem::path& path, std::uint16_t others) {
  const net::UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = address_of(path);
  std::filesystem::remove(path);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener.get(), others) != 0) {
    throw CommandError("cannot listen for the other ranks at " + path.string());
  }
  for (std::uint16_t i = 0; i < others; ++i) {
    streams_.emplace_back(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
}

void RankMeeting::join(const std::filesystem::path& path) {
  const sockaddr_un address = address_of(path);
  for (int attempt = 0; attempt < kJoinAttempts; ++attempt) {
    net::UniqueFd stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(stream.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
        0) {
      streams_.push_back(std::move(stream));
      return;
    }
    ::usleep(5000);
  }
  throw CommandError("rank 0 did not come to " + path.string());
}

base::Instant RankMeeting::agree_on_start() {
  std::int64_t start = 0;
  std::uint8_t here = 1;
  if (rank_ != 0) {
    write_all(streams_.front(), &here, 1);
    read_all(streams_.front(), &start, 1);
    return base::Instant(base::nanoseconds(start));
  }
  for (const net::UniqueFd& stream : streams_) {
    read_all(stream, &here, 1);
  }
  start = (base::MonotonicClock().now() + kHeadStart).since_zero().count();
  for (const net::UniqueFd& stream : streams_) {
    write_all(stream, &start, 1);
  }
  return base::Instant(base::nanoseconds(start));
}

std::vector<FlowOutcome> RankMeeting::gather(const std::vector<FlowOutcome>& own) {
  if (rank_ != 0) {
    const std::uint64_t count = own.size();
    write_all(streams_.front(), &count, 1);
    write_all(streams_.front(), own.data(), own.size());
    return {};
  }
  std::vector<FlowOutcome> all = own;
  for (const net::UniqueFd& stream : streams_) {
    std::uint64_t count = 0;
    read_all(stream, &count, 1);
    std::vector<FlowOutcome> theirs(count);
    read_all(stream, theirs.data(), theirs.size());
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  return all;
}

// ------------------------------------------------------------------ the program of a rank

// This rank's settings from the lab.
struct LabPlace {
  launch::Launch launch;
  base::BitRate link_rate;
  std::uint32_t trim_bytes = 0;
};

LabPlace lab_place() {
  const base::Environment told = base::Environment::of_process();
  const auto rate = value_or_throw(told.optional_number("SPILLWAY_LINK_RATE"));
  LabPlace place{
      .launch = value_or_throw(launch::launch_from_environment(told, /*servers=*/0)),
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
