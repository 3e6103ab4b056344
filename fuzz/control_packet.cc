// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary bytes as a control packet.
//
// The first byte chooses the job's checks (tags, or tags and encryption) and whether to repair
// them. With repaired checks, fields that no honest member writes get past them. An accepted packet
// must satisfy the bounds that ControlPacket states and survive a write and a second read
// unchanged.
#include <algorithm>
#include <array>
#include <vector>

#include "fuzzing.h"
#include "wire/control_packet.h"

using namespace spillway::wire;
using spillway::base::ByteView;
using spillway::fuzzing::auth_of;
using spillway::fuzzing::require;

namespace {

void repair(std::vector<std::uint8_t>& packet, const PacketAuth& auth) {
  ControlPacket header;
  if (read_control_header(packet, header) != PacketFault::kNone) {
    return;
  }
  const std::size_t end = packet.size() - SPILLWAY_CHECK_SIZE;
  const Check check = auth.check(header.name(), ByteView(packet).first(end));
  std::copy(check.bytes.begin(), check.bytes.end(), packet.begin() + static_cast<long>(end));
}

void check_bounds(const ControlPacket& packet) {
  switch (packet.type) {
    case ControlType::kProbe:
      require(packet.probe.packets >= 1 && packet.probe.packets <= SPILLWAY_MAX_PACKETS);
      require(packet.probe.important <= packet.probe.packets);
      break;
    case ControlType::kStop:
      require(packet.stop.outcome < Outcome::kPeerDead);
      require(packet.stop.delivered <= SPILLWAY_MAX_PACKETS);
      break;
    case ControlType::kBitmap:
      require(packet.bitmap.range.count >= 1);
      require(packet.bitmap.range.count <= SPILLWAY_MAX_BITMAP_BYTES * 8);
      require(packet.bitmap.range.first + packet.bitmap.range.count <= SPILLWAY_MAX_PACKETS);
      break;
    case ControlType::kCredit:
      require(packet.credit.path_count <= SPILLWAY_MAX_PATH_REPORTS);
      break;
    case ControlType::kWait:
      break;
    case ControlType::kLeave:
      require(static_cast<unsigned>(packet.leave.cause) < kFailureCauses);
      if (packet.leave.cause == FailureCause::kMismatch) {
        for (const CallText& call : packet.mismatch.calls) {
          require(call.view().size() <= SPILLWAY_MAX_CALL_TEXT);
        }
      }
      break;
  }
}

std::vector<std::uint8_t> written(const ControlPacket& packet, const PacketAuth& auth) {
  std::vector<std::uint8_t> bytes(packet.size());
  require(write_control_packet(packet, auth, bytes) == bytes.size());
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const PacketAuth& auth = auth_of((data[0] & 1U) != 0);
  std::vector<std::uint8_t> bytes(data + 1, data + size);
  if ((data[0] & 2U) != 0) {
    repair(bytes, auth);
  }
  ControlPacket packet;
  if (open_control_packet(bytes, auth, packet) != PacketFault::kNone) {
    return 0;
  }
  check_bounds(packet);
  const std::vector<std::uint8_t> once = written(packet, auth);
  require(once.size() == bytes.size());
  ControlPacket again;
  require(open_control_packet(once, auth, again) == PacketFault::kNone);
  require(written(again, auth) == once);
  return 0;
}
