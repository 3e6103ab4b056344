// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_coder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "codec/lanes.h"
#include "codec/level_code.h"
#include "codec/plane_code.h"
#include "codec/rotation.h"
#include "packetize/packet_plan.h"

namespace spillway::gpu {

// ------------------------------------------------------------------ launches

namespace {

// Scratch memory behind the tile: 128 counters per row (kernels/encode.cuh). The sums of sixteen
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

namespace {

static_assert(kLaneWords == codec::kChunkWords);
static_assert(codec::kLevelRotations == 1);

// Coordinates of a row that lie in chunks with contributors.
std::size_t arrived_of(const codec::Row& row, std::size_t per_chunk,
                       std::span<const unsigned> contributors) {
  const std::size_t end = row.offset + row.length();
  std::size_t arrived = 0;
  for (std::size_t first = row.offset; first < end;) {
    const std::size_t chunk = first / per_chunk;
    const std::size_t until = std::min(end, (chunk + 1) * per_chunk);
    arrived += contributors[chunk] > 0 ? until - first : 0;
    first = until;
  }
  return arrived;
}

}  // namespace

std::size_t coordinates_of(const codec::RowLayout& rows) {
  const codec::Row last = rows.row(rows.row_count() - 1);
  return last.offset + last.length();
}

std::size_t words_of(const collective::DeviceLevels& levels) {
  return levels.lanes.chunks_for(coordinates_of(levels.rows)) * codec::kChunkWords;
}

std::vector<LevelRow> rounded_rows(const collective::DeviceLevels& levels,
                                   std::span<const codec::RotatedRow> rows,
                                   std::span<const float> scales) {
  const double steps = codec::steps_per_unit(*levels.code);
  std::vector<LevelRow> rounded;
  for (std::size_t i = 0; i < levels.rows.row_count(); ++i) {
    if (codec::is_special_scale(scales[i])) {
      rounded.push_back({0.0F, 0, LevelRowKind::kNothing});
      continue;
    }
    const unsigned log2_length = levels.rows.row(i).log2_length;
    const bool is_finite = !std::isnan(rows[i].measure);
    rounded.push_back({codec::rounding_factor(steps, rows[i], scales[i], log2_length),
                       rows[i].exponent,
                       is_finite ? LevelRowKind::kValues : LevelRowKind::kConstant});
  }
  return rounded;
}

std::vector<LevelRow> decoded_rows(const collective::DeviceLevels& levels,
                                   const collective::DeviceLevelSums& sums,
                                   const std::vector<bool>& cleared) {
  std::vector<LevelRow> decoded;
  for (std::size_t i = 0; i < levels.rows.row_count(); ++i) {
    const codec::Row row = levels.rows.row(i);
    const float scale = sums.scales[i];
    const std::size_t arrived =
        sums.makes_up ? arrived_of(row, levels.lanes.values_per_chunk(), sums.contributors)
                      : row.length();
    if (!cleared.empty() && cleared[i]) {
      decoded.push_back({0.0F, 0, LevelRowKind::kCleared});
    } else if (arrived == 0 || codec::is_special_scale(scale)) {
      decoded.push_back({std::isnan(scale) ? scale : 0.0F, 0, LevelRowKind::kConstant});
    } else {
      const float factor =
          codec::level_row_factor(*levels.code, scale, row.length(), arrived, sums.weight);
      decoded.push_back(
          {codec::unrotation_step(row.log2_length, factor), 0, LevelRowKind::kValues});
    }
  }
  return decoded;
}

std::vector<ChunkShare> chunk_shares(const collective::DeviceLevels& levels,
                                     const collective::DeviceLevelSums& sums) {
  std::vector<ChunkShare> shares;
  for (const unsigned contributors : sums.contributors) {
    const unsigned middle = contributors * levels.code->range;
    shares.push_back({middle, middle == 0 ? 0.0F : 1.0F / static_cast<float>(middle)});
  }
  return shares;
}

namespace {

// Four values per thread.
LaunchSize size_for(std::size_t count) {
  constexpr std::size_t kThreads = 256;
  constexpr std::size_t kPerBlock = kThreads * 4;
  return {static_cast<unsigned>((count + kPerBlock - 1) / kPerBlock), kThreads, 0};
}

}  // namespace

base::Result<PlaneCoder> PlaneCoder::make(DeviceHandle device) {
  base::Result<DeviceMemory> tables = DeviceMemory::make(device, sizeof(CodeTables));
  if (!tables.ok()) {
    return tables.status();
  }
  base::Result<OwnedStream> stream = OwnedStream::make(device);
  if (!stream.ok()) {
    return stream.status();
  }
  const CodeTables content = make_code_tables();
  base::Status status =
      stream.value().copy_to_device(tables.value().get(), &content, sizeof content);
  if (status.ok()) {
    status = stream.value().wait();
  }
  if (!status.ok()) {
    return status;
  }
  return PlaneCoder(std::move(device), std::move(tables).value());
}

base::Status PlaneCoder::encode(const packetize::PacketPlan& plan, std::uint64_t key, RowSlice rows,
                                const DeviceArray& tensor, const DeviceMessage& message,
                                Stream stream, DevicePointer factors) const {
  for (const Launch& launch : launches_of(plan.layout(), rows.first, rows.count)) {
    const EncodeArguments arguments{.values = device_memory<void>(tensor.values),
                                    .payload = device_memory<unsigned char>(message.payload),
                                    .rows = device_memory<RowCode>(message.rows),
                                    .factors = device_memory<float>(factors),
                                    .tables = device_memory<CodeTables>(tables_.get()),
                                    .key = key,
                                    .shape = shape_of(plan),
                                    .range = launch.rows};
    const base::Status status = device_->launch(kernel_for(Kernel::kEncodeFloat32, tensor.element),
                                                size_of(launch), &arguments, stream);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status PlaneCoder::decode(const packetize::PacketPlan& plan, std::uint64_t key, RowSlice rows,
                                const DeviceMessage& message, codec::Estimate estimate, Store store,
                                const DeviceArray& tensor, Stream stream) const {
  for (const Launch& launch : launches_of(plan.layout(), rows.first, rows.count)) {
    const DecodeArguments arguments{.payload = device_memory<unsigned char>(message.payload),
                                    .received = device_memory<unsigned short>(message.received),
                                    .rows = device_memory<RowCode>(message.rows),
                                    .values = device_memory<void>(tensor.values),
                                    .tables = device_memory<CodeTables>(tables_.get()),
                                    .key = key,
                                    .shape = shape_of(plan),
                                    .range = launch.rows,
                                    .estimate = static_cast<unsigned>(estimate),
                                    .store = store};
    const base::Status status = device_->launch(kernel_for(Kernel::kDecodeFloat32, tensor.element),
                                                size_of(launch), &arguments, stream);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status PlaneCoder::widen(const DeviceArray& from, DevicePointer residual, DevicePointer to,
                               std::size_t count, Stream stream) const {
  const WidenArguments arguments{device_memory<void>(from.values), device_memory<float>(to),
                                 device_memory<float>(residual), count};
  return device_->launch(kernel_for(Kernel::kWidenFloat32, from.element), size_for(count),
                         &arguments, stream);
}

base::Status PlaneCoder::clear_unless_finite(DevicePointer values, std::size_t count,
                                             DevicePointer found, Stream stream) const {
  const FiniteArguments arguments{device_memory<float>(values), device_memory<unsigned>(found),
                                  count};
  base::Status status = device_->clear(found, sizeof(unsigned), stream);
  for (const Kernel kernel : {Kernel::kFindNotFinite, Kernel::kClearIfFound}) {
    status = status.ok() ? device_->launch(kernel, size_for(count), &arguments, stream) : status;
  }
  return status;
}

base::Status PlaneCoder::rotate(const codec::RowLayout& layout, std::uint64_t key,
                                DevicePointer from, DevicePointer to, Stream stream) const {
  SPILLWAY_CHECK(layout.tensor_length() % (std::size_t{1} << layout.row_log2()) == 0);
  for (const Launch& launch : launches_of(layout, 0, layout.row_count())) {
    const RotateArguments arguments{.from = device_memory<float>(from),
                                    .to = device_memory<float>(to),
                                    .key = key,
                                    .range = launch.rows};
    const base::Status status =
        device_->launch(Kernel::kRotate, size_of(launch), &arguments, stream);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

namespace {

LevelTensor tensor_of(const collective::DeviceLevels& levels, const DeviceArray& values) {
  return {.values = device_memory<void>(values.values),
          .count = levels.rows.tensor_length(),
          .key = levels.key,
          .row_log2 = levels.rows.row_log2()};
}

}  // namespace

base::Status LevelCoder::measure(const collective::DeviceLevels& levels, const DeviceArray& values,
                                 DevicePointer measures, Stream stream) const {
  for (const Launch& launch : launches_of(levels.rows, 0, levels.rows.row_count())) {
    const MeasureArguments arguments{.tensor = tensor_of(levels, values),
                                     .rows = device_memory<RowMeasure>(measures),
                                     .range = launch.rows};
    const base::Status status = device_->launch(kernel_for(Kernel::kMeasureFloat32, values.element),
                                                size_of(launch), &arguments, stream);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status LevelCoder::round(const collective::DeviceLevels& levels, const DeviceArray& values,
                               DevicePointer rows, DevicePointer numbers, DevicePointer clipped,
                               DevicePointer words, Stream stream) const {
  for (const Launch& launch : launches_of(levels.rows, 0, levels.rows.row_count())) {
    const RoundArguments arguments{.tensor = tensor_of(levels, values),
                                   .rows = device_memory<LevelRow>(rows),
                                   .levels = device_memory<unsigned short>(numbers),
                                   .clipped = device_memory<unsigned>(clipped),
                                   .range = launch.rows,
                                   .rank = levels.rank,
                                   .range_of_levels = static_cast<float>(levels.code->range)};
    const base::Status status = device_->launch(kernel_for(Kernel::kRoundFloat32, values.element),
                                                size_of(launch), &arguments, stream);
    if (!status.ok()) {
      return status;
    }
  }
  constexpr unsigned kThreads = 256;
  const PackArguments arguments{.levels = device_memory<unsigned short>(numbers),
                                .words = device_memory<unsigned long long>(words),
                                .levels_count = coordinates_of(levels.rows),
                                .words_count = words_of(levels),
                                .lanes = lanes_of(levels.lanes)};
  const auto blocks = static_cast<unsigned>((arguments.words_count + kThreads - 1) / kThreads);
  return device_->launch(Kernel::kPackLevels, {blocks, kThreads, 0}, &arguments, stream);
}

base::Status LevelCoder::decode(const collective::DeviceLevels& levels, DevicePointer words,
                                DevicePointer chunks, DevicePointer rows, Store store,
                                const DeviceArray& values, Stream stream) const {
  for (const Launch& launch : launches_of(levels.rows, 0, levels.rows.row_count())) {
    const SumArguments arguments{.tensor = tensor_of(levels, values),
                                 .words = device_memory<unsigned long long>(words),
                                 .chunks = device_memory<ChunkShare>(chunks),
                                 .rows = device_memory<LevelRow>(rows),
                                 .range = launch.rows,
                                 .lanes = lanes_of(levels.lanes),
                                 .store = store};
    const base::Status status =
        device_->launch(kernel_for(Kernel::kDecodeSumsFloat32, values.element), size_of(launch),
                        &arguments, stream);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace spillway::gpu
