// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/peer/peer_checks.h"

#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <string>

#include "net/path_mtu.h"
#include "tools/doctor/peer/listener.h"
#include "tools/doctor/peer/mark_survival.h"
#include "tools/doctor/peer/path_mtu.h"
#include "tools/doctor/peer/peer_link.h"
#include "tools/doctor/peer/round_trips.h"

namespace spillway::doctor {
namespace {

// The timeout for an answer once the round-trip time is known.
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
  return std::max(kEverywhere, std::min(path->passed, path->believed));
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
                       std::optional<unsigned> told, Findings& findings) {
  const base::Result<unsigned> limit = net::datagram_limit(mtu, link.peer());
  if (!limit.ok()) {
    findings.push_back(failed("trim", limit.status()));
    return;
  }
  if (const std::optional<BurstOutcome> burst = provoke_trims(link, *limit, trims)) {
    append(findings, check_trims(*burst, told));
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
                       std::optional<unsigned> told_trim_bytes) {
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
  check_full_queues(link, mtu, trims, told_trim_bytes, findings);
  return findings;
}

}  // namespace spillway::doctor
