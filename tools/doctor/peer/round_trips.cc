// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/peer/round_trips.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace spillway::doctor {
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

EchoSample sample_of(const PeerAnswer& answer) {
  const ProbePacket& packet = answer.packet;
  // In 128 bits: the time stamps come from the network and may have any value.
  const __int128 there = static_cast<__int128>(packet.received_ns) - packet.sent_ns;
  const __int128 back = static_cast<__int128>(packet.answered_ns) - answer.arrived_ns;
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
  if (!link.ask_again({}, kFirstTries)) {
    return std::nullopt;
  }
  std::vector<EchoSample> samples;
  for (unsigned i = 0; i < kEchoes; ++i) {
    if (const std::optional<PeerAnswer> answer = link.ask({})) {
      samples.push_back(sample_of(*answer));
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
          fmt::format("no answer from {}{}", peer.to_string(), reason),
          fmt::format("spillway doctor --listen (on that host), and let UDP port {} through any "
                      "firewall between",
                      peer.port())};
}

}  // namespace spillway::doctor
