// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch_plan.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "codec/plane_code.h"
#include "packetize/kept_planes.h"

namespace spillway::gpu {
namespace {

// Scratch memory behind the tile: 128 counters per row (kernels/rounds.cuh). The sums of sixteen
// lanes before them and a decoder's magnitudes need no more than that.
constexpr std::size_t kCountBytes = 128 * sizeof(unsigned);
constexpr std::size_t kMagnitudeBytes = 256 * sizeof(float);
// Bytes of a row's state (kernels/tile.cuh), and of the test terms of a single row.
constexpr std::size_t kStateBytes = 96;
constexpr std::size_t kTermBytes = 128 * sizeof(double);

unsigned shared_bytes_of(unsigned tile_log2, unsigned log2_length) {
  const std::size_t count = std::size_t{1} << tile_log2;
  const std::size_t rows = std::size_t{1} << (tile_log2 - log2_length);
  const std::size_t values = (count + count / 8) * sizeof(float);
  const std::size_t signs = count / 32 * sizeof(unsigned);
  const std::size_t counts = rows * kCountBytes + (rows == 1 ? kTermBytes : 0);
  return static_cast<unsigned>(rows * kStateBytes + values + signs +
                               std::max(counts, kMagnitudeBytes));
}

Launch launch_of(std::size_t first, std::size_t count, unsigned log2_length) {
  const unsigned tile_log2 = count == 1 ? log2_length : std::max(log2_length, kMinTileLog2);
  const std::size_t per_block = std::size_t{1} << (tile_log2 - log2_length);
  const RowRange rows{static_cast<unsigned>(first), static_cast<unsigned>(count), log2_length,
                      tile_log2};
  return {rows, static_cast<unsigned>((count + per_block - 1) / per_block),
          std::clamp(1U << (tile_log2 - 5), 32U, kMaxThreads),
          shared_bytes_of(tile_log2, log2_length)};
}

}  // namespace

MessageShape shape_of(const packetize::PacketPlan& plan) {
  const std::size_t full = std::size_t{1} << plan.layout().row_log2();
  const std::size_t per_packet = plan.coordinates_per_packet();
  return {.values = plan.layout().tensor_length(),
          .row_log2 = plan.layout().row_log2(),
          .planes = plan.planes(),
          .quanta = static_cast<unsigned>(plan.quanta()),
          .packets_per_row = static_cast<unsigned>((full + per_packet - 1) / per_packet),
          .packet_stride = static_cast<unsigned>(packetize::plane_stride(plan))};
}

std::vector<Launch> launches_of(const codec::RowLayout& layout, std::size_t first,
                                std::size_t count) {
  SPILLWAY_CHECK(first + count <= layout.row_count());
  std::vector<Launch> launches;
  if (count == 0) {
    return launches;
  }
  const unsigned last = layout.row(first + count - 1).log2_length;
  const std::size_t full = last == layout.row_log2() ? count : count - 1;
  if (full > 0) {
    launches.push_back(launch_of(first, full, layout.row_log2()));
  }
  if (full < count) {
    launches.push_back(launch_of(first + full, 1, last));
  }
  return launches;
}

CodeTables make_code_tables() {
  static_assert(sizeof(CodeTables::magnitudes[0]) <= kMagnitudeBytes);
  CodeTables tables{};
  double outer = 1.0;
  for (unsigned cell = 0; cell + 1 < kTestCells; ++cell) {
    tables.cell_mass[cell] = codec::magnitude_cell_mass(cell);
    outer -= tables.cell_mass[cell];
  }
  tables.cell_mass[kTestCells - 1] = outer;
  for (unsigned cell = 0; cell < kTestCells; ++cell) {
    tables.inverse_mass[cell] = 1.0 / tables.cell_mass[cell];
  }
  constexpr double kFreedom = kTestCells - 1;
  constexpr double kDeviations = 8.0;
  tables.threshold = kFreedom + kDeviations * std::sqrt(2.0 * kFreedom);
  for (const codec::Estimate estimate :
       {codec::Estimate::kUnbiased, codec::Estimate::kMinimumError}) {
    for (unsigned planes = 1; planes <= codec::kTablePlanes; ++planes) {
      const codec::LevelTable& levels = codec::level_table(planes, estimate);
      const unsigned cells = 1U << (planes - 1);
      for (unsigned cell = 0; cell < cells; ++cell) {
        tables.magnitudes[static_cast<unsigned>(estimate)][cells - 1 + cell] =
            levels[cell << (codec::kTablePlanes - planes)];
      }
    }
  }
  return tables;
}

}  // namespace spillway::gpu
