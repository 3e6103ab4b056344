// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary bytes as a data packet.
//
// The first byte chooses the job's checks (tags, or tags and encryption) and whether to repair
// them. With repaired checks, fields that no honest sender writes get past them, as they would from
// a faulty member of the job. An accepted packet must satisfy the bounds that DataHeader states,
// and trusted planes must be what the packet holds.
#include <algorithm>
#include <array>
#include <vector>

#include "fuzzing.h"
#include "wire/data_packet.h"

using spillway::base::ByteView;
using namespace spillway::wire;
using spillway::fuzzing::auth_of;
using spillway::fuzzing::require;

namespace {

// Writes the check that matches the header and head of `packet`.
void repair_head(std::vector<std::uint8_t>& packet, const PacketAuth& auth) {
  DataHeader header;
  if (read_data_header(packet, header) != PacketFault::kNone || packet.size() < header.head_end()) {
    return;
  }
  const std::size_t start = header.header_size();
  const ByteView bytes(packet);
  const Check check =
      auth.open_head(header.stamp.name(), bytes.first(start),
                     bytes.subspan(start + SPILLWAY_CHECK_SIZE, header.head_bytes), nullptr);
  std::copy(check.bytes.begin(), check.bytes.end(), packet.begin() + static_cast<long>(start));
}

void check_bounds(const DataHeader& header, std::size_t size) {
  require(header.packet_size() <= SPILLWAY_MAX_PACKET);
  require(size >= header.head_end());
  if (header.codec == Codec::kBytes) {
    require(header.head_bytes == 0 && header.byte_count < size);
    return;
  }
  const std::size_t length = std::size_t{1} << header.row_log2;
  require(header.count() > 0 && header.count() % SPILLWAY_QUANTUM == 0);
  require(header.first() + header.count() <= length);
  require(header.planes >= 1 && header.planes <= SPILLWAY_MAX_PLANES);
  require(header.head_bytes > 0 && header.head_bytes <= header.payload_bytes());
  require(size <= header.packet_size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const PacketAuth& auth = auth_of((data[0] & 1U) != 0);
  std::vector<std::uint8_t> packet(data + 1, data + size);
  if ((data[0] & 2U) != 0) {
    repair_head(packet, auth);
  }
  OpenedPacket opened;
  if (open_data_packet(packet, auth, opened) != PacketFault::kNone) {
    return 0;
  }
  check_bounds(opened.header, packet.size());
  std::vector<std::uint8_t> planes(opened.header.payload_bytes());
  const TrustedPlanes trusted = copy_trusted_planes(packet, opened, planes);
  require(trusted.bytes >= opened.header.head_bytes && trusted.bytes <= planes.size());
  const std::size_t head = opened.header.head_end() - opened.header.head_bytes;
  require(opened.header.encrypted ||
          std::equal(planes.begin(), planes.begin() + opened.header.head_bytes,
                     packet.begin() + static_cast<long>(head)));
  if (opened.header.codec == Codec::kBytes) {
    std::vector<std::uint8_t> decrypted(opened.header.payload_bytes());
    require(trusted_bytes(packet, opened, decrypted).size() == trusted.bytes);
    require(trusted.bytes == 0 || trusted.bytes == opened.header.byte_count);
  }
  return 0;
}
