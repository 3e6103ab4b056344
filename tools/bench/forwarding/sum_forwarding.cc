// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/forwarding/sum_forwarding.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "switch/dataplane/bpf/probe_maps.h"
#include "switch/dataplane/sum_frame.h"
#include "tools/bench/command_error.h"
#include "tools/bench/forwarding/pinned_thread.h"
#include "tools/bench/forwarding/rig.h"
#include "tools/bench/progress.h"

namespace spillway::bench {
namespace {

struct SumForwarder {
  kernel::Hook hook;
  bool adds;
  std::string_view name;
};
constexpr std::array<SumForwarder, 4> kSumForwarders = {{
    {kernel::Hook::kXdp, false, "switch at XDP, forwards"},
    {kernel::Hook::kXdp, true, "switch at XDP, adds"},
    {kernel::Hook::kTcBoth, false, "switch at tc, forwards"},
    {kernel::Hook::kTcBoth, true, "switch at tc, adds"},
}};

constexpr spillway_sum_config kRigSums = {.slots = 4096,
                                          .lease_us = SPILLWAY_SUM_LEASE_US,
                                          .pools = 1,
                                          .policy = SPILLWAY_SUM_PREEMPTIVE,
                                          .level = 0,
                                          .reserved = {}};

kernel::Frame rig_sum_frame() {
  spillway_sum_image image = {};
  image.fields.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_SUM;
  image.fields.common.job = 1;
  image.fields.kind = SPILLWAY_SUM_PART;
  image.fields.need[0] = SPILLWAY_FEED_RANKS;
  std::vector<std::uint8_t> payload(SPILLWAY_SUM_PACKET, 1);
  std::memcpy(payload.data(), &image, sizeof(image));
  return kernel::frame_of({}, payload);
}

std::uint64_t taken(const spillway_sum_counters& counters) {
  return counters.outcomes[SPILLWAY_SUM_DID_CLAIM] + counters.outcomes[SPILLWAY_SUM_DID_ADD] +
         counters.outcomes[SPILLWAY_SUM_DID_EMIT];
}

SumForwarding measure_once(const SumForwarder& forwarder, std::uint32_t frames) {
  kernel::LiveSwitchOptions options = rig_switch(forwarder.hook);
  options.feeder = kRigFeeder;
  options.sums = kRigSums;
  const std::unique_ptr<kernel::LiveSwitch> live =
      value_or_throw(kernel::LiveSwitch::attach(options));
  const kernel::Frame frame =
      forwarder.adds ? rig_sum_frame()
                     : rig_data_frame(SPILLWAY_ETHERNET_HEADER + SPILLWAY_SUM_DATAGRAM);
  const auto count = [&] { return forwarder.adds ? taken(live->sums()) : live->arrived(); };
  throw_unless_ok(live->send(frame, frames / 10 + 1));  // warms caches and tables
  const std::uint64_t before = count();
  const base::Instant start = base::MonotonicClock().now();
  throw_unless_ok(live->send(frame, frames));
  const auto nanoseconds = static_cast<double>((base::MonotonicClock().now() - start).count());
  const auto came = static_cast<double>(count() - before);
  return {.forwarder = std::string(forwarder.name),
          .adds = forwarder.adds,
          .ns = nanoseconds / std::max(1.0, came),
          .taken_share = came / frames};
}

}  // namespace

std::vector<SumForwarding> measure_sum_forwarding(const ForwardingOptions& options) {
  std::array<std::vector<SumForwarding>, kSumForwarders.size()> rounds;
  const ForwardingRig rig;
  const PinnedThread pinned(options.cpu);
  Progress progress(options.rounds * kSumForwarders.size());
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < kSumForwarders.size(); ++i) {
      progress.step(kSumForwarders[i].name);
      rest();
      rounds[i].push_back(measure_once(kSumForwarders[i], options.frames));
    }
  }
  std::vector<SumForwarding> medians;
  for (std::vector<SumForwarding>& round : rounds) {
    std::ranges::sort(round, {}, &SumForwarding::ns);
    medians.push_back(round[round.size() / 2]);
  }
  return medians;
}

}  // namespace spillway::bench
