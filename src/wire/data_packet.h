// SPDX-License-Identifier: Apache-2.0
//
// Whole data packets: header, planes and checks, written and read.
//
// A reader trusts nothing but received bytes and their checks. It takes a packet in two steps: the
// header with its head (all or nothing), then as many further planes as have a good check. IP and
// UDP lengths play no part; a packet shorter than its header promises was cut on the way.
#pragma once

#include "base/bytes.h"
#include "wire/data_header.h"
#include "wire/packet_auth.h"

namespace spillway::wire {

// Writes a packet of header.packet_size() bytes: `planes` holds header.plane_bytes() bytes.
// header.keyed must agree with `auth`. Returns the packet's size.
std::size_t write_data_packet(const DataHeader& header, base::ByteView planes,
                              const PacketAuth& auth, base::MutableByteView out);

struct OpenedPacket {
  DataHeader header;
  Check head_check;
};

// Reads the header and verifies it together with the head.
PacketFault open_data_packet(base::ByteView packet, const PacketAuth& auth, OpenedPacket& opened);

struct TrustedPlanes {
  std::size_t bytes;  // of planes, from the first on, that may be decoded
  bool corrupt_tail;  // a tail segment was there and did not match its check
};

// Copies the trusted planes of an opened packet to `out`, which has room for
// header.plane_bytes(): the head, and every tail segment before the first cut or bad one. What lies
// behind them in `out` is overwritten with nothing to rely on.
TrustedPlanes copy_trusted_planes(base::ByteView packet, const OpenedPacket& opened,
                                  const PacketAuth& auth, base::MutableByteView out);

}  // namespace spillway::wire
