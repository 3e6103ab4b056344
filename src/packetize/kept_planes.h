// SPDX-License-Identifier: Apache-2.0
//
// A coded message in memory: the planes of its packets, each at the same distance from the one
// before, and what its rows' headers say. Whoever codes fills it, on the CPU or on a GPU; packets
// are written from it, or come into it.
//
// The memory may be somebody else's, who gets it back when the last owner is done with it. Plain
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

// Bytes from one packet's planes to the next one's, and of all of them.
std::size_t plane_stride(const PacketPlan& plan);
std::size_t plane_memory_bytes(const PacketPlan& plan);

struct KeptPlanes {
  PlaneMemory memory;                  // plane_memory_bytes() of the plan
  std::vector<codec::RowHeader> rows;  // by row; of one of which nothing came, nothing
  std::vector<std::uint16_t> bytes;  // by packet: of its planes, from the first on, that are there

  // In memory of its own, or in the given one; nothing is there yet.
  static KeptPlanes make(const PacketPlan& plan);
  static KeptPlanes make_in(const PacketPlan& plan, PlaneMemory memory);

  // What is there of a packet.
  base::ByteView planes_of(const PacketPlan& plan, std::size_t packet) const {
    return {memory.get() + packet * plane_stride(plan), bytes[packet]};
  }
};

// The header of a packet, but for what the transport says of it: of its stamp only which packet of
// the message it is.
wire::DataHeader packet_header(const PacketPlan& plan, std::size_t packet,
                               const codec::RowHeader& row);

}  // namespace spillway::packetize
