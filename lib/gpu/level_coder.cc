// SPDX-License-Identifier: Apache-2.0
#include "gpu/level_coder.h"

#include "gpu/level_plan.h"

namespace spillway::gpu {
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
