// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant_layout.h"

namespace spillway::collective {

base::Result<TolerantLayout> TolerantLayout::make(const Operation& operation, const Group& group,
                                                  std::uint32_t step,
                                                  const packetize::Fabric& fabric, bool keyed,
                                                  std::size_t piece_bytes) {
  const Tolerance& tolerance = *operation.tolerance;
  TolerantLayout layout;
  layout.fabric = fabric;
  layout.reduce_encoding = {.planes = tolerance.precision, .keyed = keyed};
  layout.gather_encoding = {.planes = tolerance.gather_precision, .keyed = keyed};
  const std::size_t most = std::max<std::size_t>(1, piece_bytes / sizeof(float));
  const std::uint16_t owners = group.servers > 0 ? group.servers : group.world;
  for (std::uint16_t shard = 0; shard < owners; ++shard) {
    const Extent extent = shard_of(operation.count, owners, shard);
    const auto owner = static_cast<std::uint16_t>(group.world - owners + (shard + step) % owners);
    for (std::size_t k = 0; k < piece_count(extent.count, most); ++k) {
      layout.pieces.push_back({piece_of(extent, most, k), shard, owner});
    }
  }
  if (layout.pieces.size() > UINT16_MAX) {
    return base::invalid_argument("too many pieces for one operation; split the tensor");
  }
  // One of each length tells whether all fit.
  for (const TolerantPiece* piece : {&layout.pieces.front(), &layout.pieces.back()}) {
    for (const auto& plan : {layout.reduce_plan(*piece), layout.gather_plan(*piece)}) {
      if (!plan.ok()) {
        return plan.status();
      }
    }
  }
  return layout;
}

base::Result<packetize::PacketPlan> TolerantLayout::reduce_plan(const TolerantPiece& piece) const {
  return packetize::PacketPlan::make(piece.extent.count, fabric, reduce_encoding);
}

base::Result<packetize::PacketPlan> TolerantLayout::gather_plan(const TolerantPiece& piece) const {
  return packetize::PacketPlan::make(piece.extent.count, fabric, gather_encoding);
}

}  // namespace spillway::collective
