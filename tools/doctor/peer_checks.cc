// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/peer_checks.h"

#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "net/address.h"
#include "net/system_call.h"
#include "tools/doctor/listener.h"
#include "tools/doctor/probe_socket.h"
#include "wire/packet.h"

namespace spillway::doctor {

namespace {

// The timeout for an reply once the round-trip time is known.
base::Duration patience_for(const RoundTrips& trips) {
  return std::max(base::milliseconds(50), trips.median * 4);
}

Finding failed(std::string_view check, const base::Status& status) {
  return {std::string(check), Severity::kError, status.message(), "see what the message says"};
}

// Returns the largest size of an IP packet that is safe to send.
unsigned check_length(PeerLink& link, Findings& findings) {
  constexpr unsigned kEverywhere = 576;
  const base::Result<PathMtu> path = measure_mtu(link);
  if (!path.ok()) {
    findings.push_back(failed("path-mtu", path.status()));
    return kEverywhere;
  }
  findings.push_back(check_path_mtu(*path));
  // A rank relies on the kernel's path MTU, but a black hole would swallow a burst of that size.
  return std::max(kEverywhere, std::min(path->passed, path->kernel_mtu));
}

void check_marks(PeerLink& link, Findings& findings) {
  std::vector<MarkTrial> dscp = dscp_trials();
  try_marks(link, dscp);
  append(findings, check_dscp(dscp));
  std::vector<MarkTrial> ecn = ecn_trials();
  try_marks(link, ecn);
  append(findings, check_ecn(ecn));
}

void check_full_queues(PeerLink& link, unsigned mtu, const TrimOptions& trims,
                       std::optional<unsigned> configured, Findings& findings) {
  const base::Result<unsigned> limit = net::datagram_limit(mtu, link.peer());
  if (!limit.ok()) {
    findings.push_back(failed("trim", limit.status()));
    return;
  }
  if (const std::optional<BurstOutcome> burst = provoke_trims(link, *limit, trims)) {
    append(findings, check_trims(*burst, configured));
    return;
  }
  findings.push_back({"trim", Severity::kNote, "the listener did not say what came of the burst",
                      "run it again; a listener serves a bounded number of probers at once"});
}

// The host without its port, and the port.
struct HostAndPort {
  std::string host;
  std::string port;
};

HostAndPort split(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const bool has_port = colon != std::string_view::npos && text.find(':') == colon;
  if (!has_port) {
    return {std::string(text), std::to_string(kDefaultPort)};
  }
  return {std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

// getaddrinfo accepts any number and truncates it to 16 bits.
bool is_port(const std::string& text) {
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, port);
  return error == std::errc() && stop == end && port != 0;
}

base::Result<net::SocketAddress> look_up(const HostAndPort& name) {
  if (!is_port(name.port)) {
    return base::invalid_argument(fmt::format("'{}' is not a port: 1 to 65535", name.port));
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(name.host.c_str(), name.port.c_str(), &hints, &list);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  if (error != 0 || list == nullptr) {
    return base::invalid_argument(
        fmt::format("cannot find '{}': {}; give an address with a port, such as 10.0.0.1:{}",
                    name.host, ::gai_strerror(error), kDefaultPort));
  }
  sockaddr_storage storage{};
  std::memcpy(&storage, list->ai_addr, list->ai_addrlen);
  return net::SocketAddress::from(storage);
}

}  // namespace

base::Result<net::SocketAddress> resolve_peer(std::string_view text) {
  for (const std::string& numeric : {std::string(text), fmt::format("{}:{}", text, kDefaultPort),
                                     fmt::format("[{}]:{}", text, kDefaultPort)}) {
    base::Result<net::SocketAddress> address = net::SocketAddress::parse(numeric);
    if (address.ok()) {
      return address;
    }
  }
  return look_up(split(text));
}

Findings check_path_to(const net::SocketAddress& peer, const TrimOptions& trims,
                       std::optional<unsigned> configured_trim_bytes) {
  base::Result<PeerLink> opened = PeerLink::open(peer);
  if (!opened.ok()) {
    return {failed("round-trip", opened.status())};
  }
  PeerLink& link = opened.value();
  const std::optional<RoundTrips> trips = measure_round_trips(link);
  if (!trips) {
    return {unreachable(peer, link.last_error())};
  }
  Findings findings = check_round_trips(*trips);
  link.set_patience(patience_for(*trips));
  const unsigned mtu = check_length(link, findings);
  check_marks(link, findings);
  check_full_queues(link, mtu, trims, configured_trim_bytes, findings);
  return findings;
}

namespace {

constexpr unsigned kEchoes = 20;
constexpr unsigned kFirstTries = 8;  // 2 s: a listener may be starting
constexpr base::Duration kFarApart = base::seconds(1);

std::string lost_text(const RoundTrips& trips) {
  return trips.lost == 0 ? "" : fmt::format(", {} of {} echoes lost", trips.lost, trips.asked);
}

Finding check_offset(const RoundTrips& trips) {
  const std::string text =
      fmt::format("the peer's is {:.1f} us {} (within {:.1f} us)",
                  base::microseconds_of(base::nanoseconds(std::abs(trips.offset.count()))),
                  trips.offset < base::Duration() ? "behind" : "ahead",
                  base::microseconds_of(trips.smallest / 2));
  if (base::nanoseconds(std::abs(trips.offset.count())) > kFarApart) {
    return {"clock-offset", Severity::kNote, text + ": logs of the two hosts will not line up",
            "let both follow one time server, such as with chrony"};
  }
  return {"clock-offset", Severity::kOk, text};
}

}  // namespace

EchoSample sample_of(const ProbeReply& reply) {
  const ProbePacket& packet = reply.packet;
  // In 128 bits: the time stamps come from the network and may have any value.
  const __int128 there = static_cast<__int128>(packet.received_ns) - packet.sent_ns;
  const __int128 back = static_cast<__int128>(packet.replied_ns) - reply.arrived_ns;
  return {.round_trip =
              base::nanoseconds(std::max<std::int64_t>(0, static_cast<std::int64_t>(there - back))),
          .offset = base::nanoseconds(static_cast<std::int64_t>((there + back) / 2))};
}

std::optional<RoundTrips> summarise(std::vector<EchoSample> samples, std::size_t asked) {
  if (samples.empty()) {
    return std::nullopt;
  }
  std::sort(samples.begin(), samples.end(),
            [](const EchoSample& a, const EchoSample& b) { return a.round_trip < b.round_trip; });
  return RoundTrips{.smallest = samples.front().round_trip,
                    .median = samples[samples.size() / 2].round_trip,
                    .offset = samples.front().offset,
                    .lost = asked - samples.size(),
                    .asked = asked};
}

std::optional<RoundTrips> measure_round_trips(PeerLink& link) {
  if (!link.ask_with_retries({}, kFirstTries)) {
    return std::nullopt;
  }
  std::vector<EchoSample> samples;
  for (unsigned i = 0; i < kEchoes; ++i) {
    if (const std::optional<ProbeReply> reply = link.ask({})) {
      samples.push_back(sample_of(*reply));
    }
  }
  return summarise(std::move(samples), kEchoes);
}

Findings check_round_trips(const RoundTrips& trips) {
  const std::string times = fmt::format("{:.1f} us at best, {:.1f} us in the middle{}",
                                        base::microseconds_of(trips.smallest),
                                        base::microseconds_of(trips.median), lost_text(trips));
  const bool loses = trips.lost * 10 >= trips.asked;
  return {{"round-trip", loses ? Severity::kWarning : Severity::kOk, times,
           loses ? "look for errors on the links: ip -s link, ethtool -S" : ""},
          check_offset(trips)};
}

Finding unreachable(const net::SocketAddress& peer, int error) {
  if (error == ECONNREFUSED) {
    return {"round-trip", Severity::kError,
            fmt::format("{} is reached, but nobody listens there", peer.to_string()),
            "spillway doctor --listen (on that host)"};
  }
  const std::string reason =
      error == 0 ? "" : fmt::format(" ({})", std::generic_category().message(error));
  return {"round-trip", Severity::kError,
          fmt::format("no reply from {}{}", peer.to_string(), reason),
          fmt::format("spillway doctor --listen (on that host), and let UDP port {} through any "
                      "firewall between",
                      peer.port())};
}

namespace {

constexpr unsigned kMinMtuIpv4 = 576;   // every IPv4 host accepts this
constexpr unsigned kMinMtuIpv6 = 1280;  // every IPv6 link carries this
constexpr unsigned kMaxMtu = 9000;      // Spillway sends no longer packets
constexpr unsigned kTriesPerSize = 3;

struct Interface {
  std::string name{};
  unsigned mtu = 0;
};

// The local address of packets to `peer`.
std::optional<net::SocketAddress> source_towards(const net::SocketAddress& peer) {
  const net::UniqueFd fd(::socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage local{};
  socklen_t size = sizeof(local);
  if (!fd.valid() || ::connect(fd.get(), peer.data(), peer.size()) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size) != 0) {
    return std::nullopt;
  }
  return net::SocketAddress::from(local).with_port(0);
}

std::optional<Interface> interface_towards(const net::SocketAddress& peer) {
  const std::optional<net::SocketAddress> source = source_towards(peer);
  const std::string name = source ? net::interface_with(*source) : "";
  const std::optional<unsigned> mtu = net::interface_mtu(name);
  return mtu ? std::optional(Interface{name, *mtu}) : std::nullopt;
}

base::Result<unsigned> kernel_path_mtu(const net::SocketAddress& peer) {
  return net::kernel_path_mtu(net::SocketAddress::any(peer.family()), peer);
}

std::string shorter_interface(const PathMtu& path, unsigned mtu) {
  return fmt::format("ip link set dev {} mtu {}", path.interface.empty() ? "NAME" : path.interface,
                     mtu);
}

}  // namespace

unsigned largest_that_passes(unsigned low, unsigned high,
                             const std::function<bool(unsigned)>& passes) {
  if (passes(high)) {
    return high;
  }
  if (low >= high || !passes(low)) {
    return 0;
  }
  while (high - low > 1) {
    const unsigned middle = low + (high - low) / 2;
    (passes(middle) ? low : high) = middle;
  }
  return low;
}

base::Result<PathMtu> measure_mtu(PeerLink& link) {
  const net::SocketAddress& peer = link.peer();
  base::Result<unsigned> kernel_mtu = kernel_path_mtu(peer);
  if (!kernel_mtu.ok()) {
    return kernel_mtu.status();
  }
  const Interface interface = interface_towards(peer).value_or(Interface{.mtu = *kernel_mtu});
  PathMtu path{.interface = interface.name, .tried = std::min(interface.mtu, kMaxMtu)};
  const unsigned headers = spillway_datagram_overhead(peer.is_ipv6());
  path.passed = largest_that_passes(
      std::min(path.tried, peer.is_ipv6() ? kMinMtuIpv6 : kMinMtuIpv4), path.tried,
      [&](unsigned mtu) {
        return link.ask_with_retries({.bytes = mtu - headers}, kTriesPerSize).has_value();
      });
  kernel_mtu = kernel_path_mtu(peer);
  path.kernel_mtu = kernel_mtu.ok() ? std::min(*kernel_mtu, kMaxMtu) : path.tried;
  return path;
}

Finding check_path_mtu(const PathMtu& path) {
  constexpr const char* kCheck = "path-mtu";
  if (path.passed == 0) {
    return {kCheck, Severity::kError, "not even the shortest packets get through unfragmented",
            "see which of the links on the way has so small an MTU, and raise it"};
  }
  if (path.passed < path.kernel_mtu) {
    return {kCheck, Severity::kError,
            fmt::format("a black hole: packets above {} bytes vanish, the kernel believes in {} "
                        "and no router said otherwise",
                        path.passed, path.kernel_mtu),
            fmt::format("{}; or raise the MTU on the way, or let ICMP (fragmentation needed, "
                        "packet too big) through",
                        shorter_interface(path, path.passed))};
  }
  if (path.passed < path.tried) {
    return {kCheck, Severity::kNote,
            fmt::format("{} bytes get through, as a router said; the interface carries {}",
                        path.passed, path.tried),
            "raise the MTU on the way, to send fewer packets"};
  }
  return {kCheck, Severity::kOk, fmt::format("{} bytes get through", path.passed)};
}

namespace {

constexpr base::Duration kMarkPatience = base::seconds(2);
constexpr std::chrono::milliseconds kBetweenRounds{50};

using Arrived = std::optional<std::uint8_t> MarkTrial::*;

// How the texts for DSCP and ECN differ.
struct Field {
  std::string check;
  std::string (*name)(std::uint8_t tos);
  bool (*survived)(std::uint8_t sent, std::uint8_t arrived);
  std::string rewritten_remedy;
};

std::string dscp_name(std::uint8_t tos) {
  return fmt::format("DSCP {}", tos >> 2);
}

std::string ecn_name(std::uint8_t tos) {
  constexpr std::array<const char*, 4> kNames = {"Not-ECT", "ECT(1)", "ECT(0)", "CE"};
  return kNames[tos & 3];
}

bool dscp_survived(std::uint8_t sent, std::uint8_t arrived) {
  return sent >> 2 == arrived >> 2;
}

bool ecn_survived(std::uint8_t sent, std::uint8_t arrived) {
  const unsigned before = sent & 3U;
  const unsigned after = arrived & 3U;
  return before == after || (before != SPILLWAY_ECN_NOT_ECT && after == SPILLWAY_ECN_CE);
}

void try_one(PeerLink& link, MarkTrial& trial) {
  if (const auto both = link.ask({.tos = trial.tos, .reply_tos = trial.tos})) {
    trial.there = both->packet.tos;
    trial.back = both->tos;
    return;
  }
  if (const auto there = link.ask({.tos = trial.tos})) {
    trial.there = there->packet.tos;
  }
  if (const auto back = link.ask({.reply_tos = trial.tos})) {
    trial.back = back->tos;
  }
}

bool is_complete(const MarkTrial& trial) {
  return trial.there && trial.back;
}

Finding rewritten_finding(const Field& field, const std::string& check,
                          std::span<const MarkTrial> trials, Arrived arrived) {
  std::vector<std::string> changes;
  for (const MarkTrial& trial : trials) {
    const std::optional<std::uint8_t>& as = trial.*arrived;
    if (as && !field.survived(trial.tos, *as)) {
      changes.push_back(fmt::format("{} arrives as {}", field.name(trial.tos), field.name(*as)));
    }
  }
  if (changes.empty()) {
    const auto came = std::count_if(trials.begin(), trials.end(), [&](const MarkTrial& one) {
      return (one.*arrived).has_value();
    });
    return {check, Severity::kOk, fmt::format("{} code points arrive unchanged", came)};
  }
  return {check, Severity::kWarning, fmt::format("{}", fmt::join(changes, ", ")),
          field.rewritten_remedy};
}

void check_direction(const Field& field, std::string_view direction,
                     std::span<const MarkTrial> trials, Arrived arrived, Findings& findings) {
  const std::string check = fmt::format("{}-{}", field.check, direction);
  findings.push_back(rewritten_finding(field, check, trials, arrived));
  std::vector<std::string> lost;
  for (const MarkTrial& trial : trials) {
    if (!(trial.*arrived)) {
      lost.push_back(field.name(trial.tos));
    }
  }
  if (!lost.empty()) {
    findings.push_back({check, Severity::kError,
                        fmt::format("packets with {} never arrive", fmt::join(lost, ", ")),
                        "look for filters and policers by class in switches and firewalls on the "
                        "way, and let these through"});
  }
}

Findings check_both(const Field& field, std::span<const MarkTrial> trials) {
  Findings findings;
  check_direction(field, "there", trials, &MarkTrial::there, findings);
  check_direction(field, "back", trials, &MarkTrial::back, findings);
  return findings;
}

}  // namespace

std::vector<MarkTrial> dscp_trials() {
  std::vector<MarkTrial> trials;
  for (std::uint8_t priority = 0; priority < SPILLWAY_PRIORITIES; ++priority) {
    trials.push_back({.tos = static_cast<std::uint8_t>(spillway_dscp_of_priority(priority) << 2)});
  }
  trials.push_back({.tos = SPILLWAY_DSCP_TRIMMED << 2});
  trials.push_back({.tos = SPILLWAY_DSCP_CONTROL << 2});
  return trials;
}

std::vector<MarkTrial> ecn_trials() {
  std::vector<MarkTrial> trials;
  for (const std::uint8_t ecn : {SPILLWAY_ECN_ECT0, SPILLWAY_ECN_ECT1, SPILLWAY_ECN_CE}) {
    trials.push_back({.tos = static_cast<std::uint8_t>(SPILLWAY_DSCP_CONTROL << 2 | ecn)});
  }
  return trials;
}

void try_marks(PeerLink& link, std::span<MarkTrial> trials) {
  const base::MonotonicClock clock;
  const base::Instant end = clock.now() + kMarkPatience;
  for (;;) {
    for (MarkTrial& trial : trials) {
      if (!is_complete(trial)) {
        try_one(link, trial);
      }
    }
    if (std::all_of(trials.begin(), trials.end(), is_complete) || clock.now() >= end) {
      return;
    }
    std::this_thread::sleep_for(kBetweenRounds);
  }
}

Findings check_dscp(std::span<const MarkTrial> trials) {
  return check_both({"dscp", dscp_name, dscp_survived,
                     "have every switch port on the way trust DSCP and not rewrite it"},
                    trials);
}

Findings check_ecn(std::span<const MarkTrial> trials) {
  return check_both(
      {"ecn", ecn_name, ecn_survived,
       "turn off whatever clears or sets ECN on the way: firewalls, tunnels, policers"},
      trials);
}

}  // namespace spillway::doctor
