// SPDX-License-Identifier: Apache-2.0
#include "runtime/timeouts.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace spillway::runtime {
namespace {

constexpr double kNanosecondsPerSecond = 1e9;

double in_seconds(base::Duration duration) {
  return static_cast<double>(duration.count()) / kNanosecondsPerSecond;
}

base::Result<base::Duration> seconds_or(const Environment& environment, const char* name,
                                        base::Duration otherwise) {
  const std::optional<std::string> text = environment.get(name);
  if (!text) {
    return otherwise;
  }
  char* end = nullptr;
  const double seconds = std::strtod(text->c_str(), &end);
  // Written so that what is not a number is refused, too.
  if (*end != '\0' || !(seconds >= in_seconds(kLeastTimeout)) ||
      !(seconds <= in_seconds(kMostTimeout))) {
    return base::invalid_argument(
        fmt::format("{} is '{}': it must be a number of seconds from {} to {}, such as 5 or 0.5",
                    name, *text, in_seconds(kLeastTimeout), in_seconds(kMostTimeout)));
  }
  return base::nanoseconds(std::llround(seconds * kNanosecondsPerSecond));
}

}  // namespace

base::Result<Timeouts> timeouts_from(const Environment& environment, const WantedTimeouts& wanted) {
  const auto peer = seconds_or(environment, "SPILLWAY_PEER_TIMEOUT", kPeerTimeout);
  if (!peer.ok()) {
    return peer.status();
  }
  const auto rendezvous =
      seconds_or(environment, "SPILLWAY_RENDEZVOUS_TIMEOUT", kRendezvousPatience);
  if (!rendezvous.ok()) {
    return rendezvous.status();
  }
  return Timeouts{.peer = wanted.peer.value_or(*peer),
                  .rendezvous = wanted.rendezvous.value_or(*rendezvous)};
}

}  // namespace spillway::runtime
