// SPDX-License-Identifier: Apache-2.0
#include "lab/calibration.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "lab/launcher.h"
#include "lab/rank_environment.h"
#include "lab/rank_group.h"
#include "net/address.h"
#include "net/system_call.h"
#include "sim/scenario/scenario.h"
#include "switch/kernel/kernel_switch.h"
#include "wire/packet.h"

namespace spillway::lab {

namespace {

// A trial may use only this share of the tolerable lateness, because a TCP frame costs the fabric
// more than a frame of the trial: the fabric carries it through the receiver's network stack.
constexpr double kShareOfLimit = 0.25;

// Takes the ranks' output.
base::Result<net::UniqueFd> make_memory_file() {
  net::UniqueFd file(::memfd_create("spillway-trial", MFD_CLOEXEC));
  return file.valid() ? base::Result<net::UniqueFd>(std::move(file))
                      : net::system_error("make a file in memory", errno);
}

std::string read_all(const net::UniqueFd& file) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = ::pread(file.get(), buffer.data(), buffer.size(),
                                       static_cast<off_t>(text.size()))) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

struct Trial {
  Pace pace;
  double share_sent = 0.0;  // by the host that sent the least of its load
  int interrupted_by = 0;
};

base::Result<Trial> run_trial(const LabOptions& options, double dilation) {
  const base::Result<net::UniqueFd> printed = make_memory_file();
  if (!printed.ok()) {
    return printed.status();
  }
  LabOptions trial = options;
  trial.scenario = scenario::dilated(options.scenario, dilation);
  trial.dataplane = Dataplane::kUser;
  trial.output.out = trial.output.err = printed->get();
  trial.on_sample = {};
  trial.trace = {};
  trial.name.clear();
  trial.ranks_per_host = 1;
  const base::Result<HostPlan> plan = make_host_plan(trial.scenario, {.mtu = trial.mtu});
  if (!plan.ok()) {
    return plan.status();
  }
  std::vector<RankCommand> commands;
  for (const HostEntry& host : plan->hosts) {
    commands.push_back({{path_of_this_tool(), "lab", "load", "--rate",
                         std::to_string(host.rate.count()), "--mtu", std::to_string(trial.mtu)},
                        {}});
  }
  const base::Result<LabOutcome> outcome = run_lab(trial, commands);
  if (!outcome.ok()) {
    return outcome.status();
  }
  if (outcome->worst_exit_code() != 0 && outcome->interrupted_by == 0) {
    return base::Status(base::StatusCode::kInternal,
                        fmt::format("the trial of the network ended with exit code {}",
                                    outcome->worst_exit_code()));
  }
  return Trial{outcome->pace, least_share_sent(read_all(*printed), commands.size()),
               outcome->interrupted_by};
}

// Suggests half as many hosts, which halve the fabric's work. Topologies with several switches may
// not allow that number.
std::string too_slow_text(const scenario::Scenario& scenario, double dilation) {
  const scenario::TopologyOptions& topology = scenario.topology;
  const bool can_be_halved =
      topology.kind == scenario::TopologyKind::kOneSwitch && topology.hosts >= 4;
  return fmt::format(
      "this machine does not emulate the network on time, not even {:g} times slower, at {}: give "
      "{}--allow-late to run it anyway, without valid measurements",
      dilation, rate_option(scenario::dilated(scenario, dilation).topology.rate),
      can_be_halved ? fmt::format("--hosts {}, or ", topology.hosts / 2) : "");
}

}  // namespace

base::Result<bool> can_be_late(const LabOptions& options) {
  const base::Result<Isolation> isolation = resolve_isolation(options.isolation);
  if (!isolation.ok()) {
    return isolation.status();
  }
  const bool can_be_in_kernel =
      *isolation == Isolation::kRoot && kernel::check_scenario(options.scenario).ok();
  const bool in_kernel = options.dataplane == Dataplane::kBpf ||
                         (options.dataplane == Dataplane::kAuto && can_be_in_kernel);
  return *isolation != Isolation::kNone && !in_kernel;
}

std::optional<double> next_dilation(const Pace& pace, double share_sent, double dilation) {
  if (pace.missed == 0 && pace.mean_late_us <= kShareOfLimit * pace.limit_us &&
      share_sent >= kLeastShareSent) {
    return dilation;
  }
  return 2 * dilation <= kMaxDilation ? std::optional(2 * dilation) : std::nullopt;
}

double slowdown_after(const Pace& late) {
  double slowdown = late.missed > 0 ? 4 : 2;
  while (slowdown < kMaxSlowdown && late.mean_late_us > slowdown * late.limit_us) {
    slowdown *= 2;
  }
  return slowdown;
}

std::string remedy_after(const scenario::Scenario& scenario, const Pace& late) {
  const double slowdown = slowdown_after(late);
  return scenario::can_be_dilated(scenario)
             ? fmt::format("give --rate {}",
                           rate_option(scenario::dilated(scenario, slowdown).topology.rate))
             : fmt::format(
                   "give the links of its topology file {0:g} times lower rates and {0:g} "
                   "times longer delays",
                   slowdown);
}

AfterRun after_run(const EndedRun& run) {
  const bool lab_chooses_rate =
      !run.rate_is_given && !run.allows_late && run.could_be_tried && !run.is_staged;
  if (!run.was_late || !lab_chooses_rate) {
    return AfterRun::kKeep;
  }
  return run.can_be_slower ? AfterRun::kRunAgainSlower : AfterRun::kFail;
}

base::Result<Calibration> calibrate(const LabOptions& options) {
  for (double dilation = 1;;) {
    const base::Result<Trial> trial = run_trial(options, dilation);
    if (!trial.ok()) {
      return trial.status();
    }
    if (trial->interrupted_by != 0) {
      return Calibration{dilation, trial->interrupted_by};
    }
    const std::optional<double> next = next_dilation(trial->pace, trial->share_sent, dilation);
    if (!next) {
      return base::Status(base::StatusCode::kUnavailable,
                          too_slow_text(options.scenario, dilation));
    }
    if (*next == dilation) {
      return Calibration{dilation, 0};
    }
    if (!scenario::can_be_dilated(options.scenario)) {
      return base::Status(base::StatusCode::kUnavailable,
                          "this machine does not emulate the network on time: " +
                              remedy_after(options.scenario, trial->pace));
    }
    dilation = *next;
  }
}

std::string rate_option(base::BitRate rate) {
  return rate.count() % 1'000'000 == 0 ? fmt::format("{}mbit", rate.count() / 1'000'000)
                                       : fmt::format("{}kbit", rate.count() / 1'000);
}

// ------------------------------------------------------------------ the load of one rank

namespace {

constexpr std::uint16_t kPort = 9077;
constexpr unsigned kHeaders = 28;    // of IPv4 and UDP together
constexpr unsigned kSmall = 64;      // payload of an acknowledgement
constexpr unsigned kEthernet = 14;   // a frame's header; preamble and gap: SPILLWAY_WIRE_OVERHEAD
constexpr std::size_t kMaxRun = 32;  // datagrams per call
constexpr std::size_t kMaxRunBytes = 60'000;
constexpr int kComputingNice = 10;
constexpr base::Duration kTick = base::milliseconds(1);
// Datagrams that are overdue by more than this are skipped. Slow networks tolerate a longer
// backlog, because their queues take longer to drain, too.
constexpr base::Duration kMostAtOnce = base::milliseconds(5);
constexpr std::int64_t kMostPacketsAtOnce = 64;
constexpr std::string_view kSent = "of the load was sent: ";

base::Result<std::vector<sockaddr_in>> addresses_of(std::string_view peers) {
  std::vector<sockaddr_in> addresses;
  while (!peers.empty()) {
    const std::size_t comma = std::min(peers.find(','), peers.size());
    const base::Result<net::SocketAddress> peer =
        net::SocketAddress::parse(std::string(peers.substr(0, comma)));
    if (!peer.ok()) {
      return peer.status();
    }
    if (peer->is_ipv6()) {
      return base::invalid_argument("a trial's load needs IPv4 addresses");
    }
    sockaddr_in address = *reinterpret_cast<const sockaddr_in*>(peer->data());
    address.sin_port = htons(kPort);
    addresses.push_back(address);
    peers.remove_prefix(std::min(comma + 1, peers.size()));
  }
  return addresses;
}

// Sends `bytes` bytes, which the kernel cuts into datagrams. Returns false if the kernel refused
// them.
bool send_run(int fd, const sockaddr_in& to, std::size_t bytes) {
  static const std::vector<std::uint8_t> kZeros(65536);
  return ::sendto(fd, kZeros.data(), bytes, 0, reinterpret_cast<const sockaddr*>(&to),
                  sizeof(to)) >= 0;
}

// Returns the share of the load that was sent.
double send_until(base::Instant end, int fd, const sockaddr_in& to, const LoadOptions& options) {
  const base::MonotonicClock clock;
  const base::Bytes wire = base::bytes(options.mtu + kEthernet + SPILLWAY_WIRE_OVERHEAD);
  const base::Duration each = base::transmission_time(wire, options.rate);
  const std::size_t payload = options.mtu - kHeaders;
  const std::size_t longest = std::min(kMaxRunBytes / payload, kMaxRun);
  const base::Duration most_at_once = std::max(kMostAtOnce, each * kMostPacketsAtOnce);
  std::size_t sent = 0;
  for (base::Instant due = clock.now(); due < end;) {
    const base::Instant now = clock.now();
    due = std::max(due, now - most_at_once);
    while (due <= now) {
      std::size_t packets = 0;
      for (; due <= now && packets < longest; due = due + each) {
        ++packets;
      }
      sent += send_run(fd, to, packets * payload) ? packets : 0;
    }
    const timespec pause = net::timespec_of(kTick);
    ::nanosleep(&pause, nullptr);
  }
  const base::Duration offered = std::max(each, options.length);
  return static_cast<double>(sent) * static_cast<double>(each.count()) /
         static_cast<double>(offered.count());
}

void acknowledge_until(base::Instant end, int fd) {
  const base::MonotonicClock clock;
  std::vector<std::uint8_t> buffer(65536);
  bool acknowledges = false;
  while (clock.now() < end) {
    pollfd readable = {fd, POLLIN, 0};
    if (::poll(&readable, 1, 10) <= 0) {
      continue;
    }
    ssize_t got = 0;
    do {
      sockaddr_in from = {};
      socklen_t size = sizeof(from);
      got = ::recvfrom(fd, buffer.data(), buffer.size(), MSG_DONTWAIT,
                       reinterpret_cast<sockaddr*>(&from), &size);
      acknowledges = got > kSmall ? !acknowledges : acknowledges;
      if (got > kSmall && acknowledges) {
        (void)send_run(fd, from, kSmall);
      }
    } while (got > 0);
  }
}

// Uses only spare CPU time (nice): a real rank does not send while it computes.
void compute_until(base::Instant end) {
  (void)!::nice(kComputingNice);
  const base::MonotonicClock clock;
  volatile double sum = 1.0;
  while (clock.now() < end) {
    for (int i = 0; i < 1000; ++i) {
      sum = sum * 1.0000001;
    }
  }
}

}  // namespace

base::Status run_load(const LoadOptions& options) {
  const base::Result<std::vector<sockaddr_in>> peers = addresses_of(options.peers);
  if (!peers.ok()) {
    return peers.status();
  }
  if (options.rank >= peers->size() || options.mtu <= kHeaders + kSmall) {
    return base::invalid_argument(
        fmt::format("rank {} of {}, MTU {}", options.rank, peers->size(), options.mtu));
  }
  const net::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_in& own = (*peers)[options.rank];
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0) {
    return net::system_error("open a socket for the load", errno);
  }
  const int segment = static_cast<int>(options.mtu - kHeaders);
  if (::setsockopt(socket.get(), SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment)) != 0) {
    return net::system_error("have the kernel cut datagrams", errno);
  }
  const base::Instant end = base::MonotonicClock().now() + options.length;
  std::thread acknowledging([&] { acknowledge_until(end, socket.get()); });
  std::thread computing([&] { compute_until(end); });
  const double share =
      send_until(end, socket.get(), (*peers)[(options.rank + 1) % peers->size()], options);
  computing.join();
  acknowledging.join();
  write_all(STDOUT_FILENO, fmt::format("{}{:.3f}\n", kSent, share));
  return {};
}

double least_share_sent(std::string_view printed, std::size_t ranks) {
  double least = 1.0;
  std::size_t found = 0;
  for (std::size_t at = printed.find(kSent); at != std::string_view::npos;
       at = printed.find(kSent)) {
    printed.remove_prefix(at + kSent.size());
    double share = 0.0;
    std::from_chars(printed.data(), printed.data() + printed.size(), share);
    least = std::min(least, share);
    ++found;
  }
  return found < ranks ? 0.0 : least;
}

}  // namespace spillway::lab
