// SPDX-License-Identifier: Apache-2.0
//
// How a tolerant all-reduce shares out its tensor: a shard per owner, pieces per shard, a message
// per piece. Owners are the group's parameter servers or, where there are none, all ranks. Which of
// them owns which shard moves on with every operation, so that a rank that is late for many of them
// does not cost the same coordinates each time.
//
// A pure value; every rank computes the same.
#pragma once

#include <vector>

#include "collective/operation.h"
#include "collective/shards.h"
#include "packetize/packet_plan.h"

namespace spillway::collective {

struct TolerantPiece {
  Extent extent;  // of the tensor
  std::uint16_t shard = 0;
  std::uint16_t owner = 0;
};

struct TolerantLayout {
  // Fails where the fabric cannot carry the precision.
  static base::Result<TolerantLayout> make(const Operation& operation, const Group& group,
                                           std::uint32_t step, const packetize::Fabric& fabric,
                                           bool keyed, std::size_t piece_bytes);

  // Of a piece's message, towards its owner and back.
  base::Result<packetize::PacketPlan> reduce_plan(const TolerantPiece& piece) const;
  base::Result<packetize::PacketPlan> gather_plan(const TolerantPiece& piece) const;

  packetize::Fabric fabric;
  packetize::Encoding reduce_encoding;
  packetize::Encoding gather_encoding;
  std::vector<TolerantPiece> pieces;
};

}  // namespace spillway::collective
