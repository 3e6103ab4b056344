// SPDX-License-Identifier: Apache-2.0
#include "lab/fabric_sample.h"

#include <algorithm>

namespace spillway::lab {
namespace {

std::uint64_t dropped_packets(const spillway_port_counters& counters) {
  std::uint64_t packets = 0;
  for (unsigned reason = SPILLWAY_REASON_QUEUE_FULL; reason < SPILLWAY_REASONS; ++reason) {
    packets += counters.packets[reason];
  }
  return packets;
}

}  // namespace

FabricSample sample_of(const fabric::FabricSnapshot& fabric, base::Duration at) {
  FabricSample sample;
  sample.at = at;
  sample.lost = fabric.lost_to_faults;
  for (const fabric::PortSnapshot& port : fabric.ports) {
    sample.sent_bytes += port.sent_bytes;
    sample.queued_bytes += port.queued_bytes;
    sample.deepest_bytes = std::max<std::uint64_t>(sample.deepest_bytes, port.queued_bytes);
    sample.trimmed += port.counters.packets[SPILLWAY_REASON_TRIMMED];
    sample.lost += dropped_packets(port.counters);
  }
  return sample;
}

}  // namespace spillway::lab
