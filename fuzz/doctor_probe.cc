// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary bytes as a datagram between a prober and a listener. A datagram that parses as a probe
// must re-encode to the same bytes. No reply may be longer than its request, and the prober must
// be able to read every reply.
#include <algorithm>
#include <vector>

#include "fuzzing.h"
#include "tools/doctor/listener.h"
#include "tools/doctor/probe_packet.h"
#include "tools/doctor/trim_probe.h"

using namespace spillway;
using spillway::fuzzing::require;

namespace {

using Bytes = std::vector<std::uint8_t>;

void try_probe(base::ByteView bytes) {
  const std::optional<doctor::ProbePacket> probe = doctor::read_probe(bytes);
  if (!probe) {
    return;
  }
  Bytes again(bytes.size());
  doctor::write_probe(*probe, again);
  require(std::equal(again.begin(), again.begin() + doctor::kProbeBytes, bytes.begin()));
}

void try_summary(base::ByteView bytes) {
  const std::optional<doctor::ArrivalSummary> summary = doctor::read_summary(bytes);
  if (!summary) {
    return;
  }
  require(summary->host == doctor::plain_name(summary->host));
  Bytes again(doctor::kSummaryBytes);
  doctor::write_summary(*summary, again);
  require(doctor::read_summary(again) == summary);
}

void try_responder(base::ByteView bytes, std::uint8_t tos) {
  doctor::Responder responder("fuzz", true);
  for (int i = 0; i < 2; ++i) {  // the second datagram may ask about the first
    const doctor::Reply reply =
        responder.take({.bytes = bytes, .from = {}, .tos = tos}, 0, base::Instant(), 0);
    require(reply.bytes.size() <= bytes.size());
    if (!reply.bytes.empty()) {
      require(doctor::read_probe(reply.bytes).has_value());
    }
  }
}

}  // namespace

// The first byte is the datagram's TOS.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const Bytes bytes(data + 1, data + size);
  try_probe(bytes);
  try_summary(bytes);
  try_responder(bytes, data[0]);
  (void)doctor::stale_payload(bytes, 7078);
  return 0;
}
