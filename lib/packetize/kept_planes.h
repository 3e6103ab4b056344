// SPDX-License-Identifier: Apache-2.0
//
// A coded message in memory: its packets' planes, at a fixed stride, and its rows' headers. A
// sender's CPU or GPU encoder fills it, and packets are written from it. A receiver fills it from
// packets.
//
// The memory may be borrowed; it returns to its lender when the last owner releases it. Plain
// values and pure functions: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "codec/row.h"
#include "packetize/packet_plan.h"
#include "wire/data_packet.h"

namespace spillway::packetize {

using PlaneMemory = std::shared_ptr<std::uint8_t[]>;

// Bytes from one packet's planes to the next packet's, and bytes of all of them.
std::size_t plane_stride(const PacketPlan& plan);
std::size_t plane_memory_bytes(const PacketPlan& plan);

struct KeptPlanes {
  PlaneMemory memory;                  // plane_memory_bytes() of the plan
  std::vector<codec::RowHeader> rows;  // one entry per row; empty if no packet of the row arrived
  std::vector<std::uint16_t> bytes;    // per packet: bytes of its planes present, from the first on

  // Starts empty, in memory of its own or in the given memory.
  static KeptPlanes make(const PacketPlan& plan);
  static KeptPlanes make_in(const PacketPlan& plan, PlaneMemory memory);

  // The planes of a packet that are present.
  base::ByteView planes_of(const PacketPlan& plan, std::size_t packet) const {
    return {memory.get() + packet * plane_stride(plan), bytes[packet]};
  }
};

// The header of a packet without the transport's fields. Its stamp holds only the packet's index
// and whether it is the message's last.
wire::DataHeader packet_header(const PacketPlan& plan, std::size_t packet,
                               const codec::RowHeader& row);

}  // namespace spillway::packetize
