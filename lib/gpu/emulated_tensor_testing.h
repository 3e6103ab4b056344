// SPDX-License-Identifier: Apache-2.0
//
// A device for tests: collective::DeviceTensor over floats in host memory, coded by the kernels on
// the CPU (block_testing.h). Any thread; calls run one at a time.
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "collective/device_tensor.h"
#include "collective/operation.h"
#include "gpu/block_testing.h"
#include "gpu/device_coder.h"

namespace spillway::gpu {

class EmulatedTensor final : public collective::DeviceTensor {
 public:
  // `count` is the number of elements of an exact operation.
  EmulatedTensor(const float* input, float* output, std::size_t count = 0)
      : input_(input), output_(output), host_(2 * count) {}

  std::uint8_t* host_input() override { return reinterpret_cast<std::uint8_t*>(host_.data()); }
  std::uint8_t* host_output() override {
    return host_input() + (input_ == output_ ? 0 : host_.size() / 2 * sizeof(float));
  }
  base::Status copy_to_host(std::size_t offset, std::size_t bytes) override {
    std::memcpy(host_input() + offset, reinterpret_cast<const std::uint8_t*>(input_) + offset,
                bytes);
    return {};
  }
  base::Status copy_to_device(std::size_t offset, std::size_t bytes) override {
    std::memcpy(reinterpret_cast<std::uint8_t*>(output_) + offset, host_output() + offset, bytes);
    return {};
  }

  base::Result<packetize::KeptPlanes> make_planes(const packetize::PacketPlan& plan) override {
    return packetize::KeptPlanes::make(plan);
  }

  base::Result<std::shared_ptr<float[]>> make_residual(std::size_t count) override {
    return std::shared_ptr<float[]>(new float[count]());
  }

  base::Status encode(const collective::Extent& extent, const packetize::PacketPlan& plan,
                      std::uint64_t key, float* residual, packetize::KeptPlanes& coded) override {
    const std::vector<float> values = own_plus_residual(extent, residual);
    if (residual != nullptr) {
      std::copy(values.begin(), values.end(), residual);
      clear_unless_finite(residual, extent.count);
    }
    encode_values(plan, key, values.data(), nullptr, coded);
    return {};
  }

  base::Status settle(const collective::Extent& extent, const packetize::PacketPlan& plan,
                      std::uint64_t key, const packetize::KeptPlanes& sent,
                      std::span<const std::uint16_t> used, float* residual) override {
    std::vector<std::uint16_t> bytes(used.begin(), used.end());
    bytes.resize(sent.bytes.size());
    decode_values(plan, key, sent, bytes.data(), Store::kSubtract, residual);
    clear_unless_finite(residual, extent.count);
    return {};
  }

  base::Status add_up(const collective::Extent& extent, const collective::DeviceSum& sum,
                      packetize::KeptPlanes& coded) override {
    std::vector<float> sums = own_plus_residual(extent, sum.residual);
    if (sum.residual != nullptr) {
      std::fill_n(sum.residual, extent.count, 0.0F);
    }
    for (const collective::DeviceContribution& part : sum.contributions) {
      decode_values(sum.contribution_plan, part.key, *part.planes, part.used.data(), Store::kAdd,
                    sums.data());
    }
    encode_values(sum.sum_plan, sum.key, sums.data(), sum.factors.data(), coded);
    decode_values(sum.sum_plan, sum.key, coded, nullptr, Store::kWrite, output_ + extent.first);
    return {};
  }

  base::Status decode(const collective::Extent& extent, const packetize::PacketPlan& plan,
                      std::uint64_t key, const packetize::KeptPlanes& came) override {
    decode_values(plan, key, came, came.bytes.data(), Store::kWrite, output_ + extent.first);
    return {};
  }

  base::Result<std::shared_ptr<std::uint64_t[]>> make_words(std::size_t count) override {
    return std::shared_ptr<std::uint64_t[]>(new std::uint64_t[count]());
  }

  base::Status measure(const collective::DeviceLevels& levels, const float* residual,
                       std::span<codec::RotatedRow> rows) override {
    const std::vector<float> values = own_plus_residual(levels.extent, residual);
    std::vector<RowMeasure> measures(rows.size());
    for_each_launch(levels, [&](const Launch& launch) {
      run_on_cpu(spillway_measure_float32, launch,
                 MeasureArguments{tensor_of(levels, values.data()), measures.data(), launch.rows});
    });
    std::transform(measures.begin(), measures.end(), rows.begin(), [](const RowMeasure& row) {
      return codec::RotatedRow{row.measure, row.exponent};
    });
    return {};
  }

  base::Status round(const collective::DeviceLevels& levels, const float* residual,
                     std::span<const codec::RotatedRow> rows, std::span<const float> scales,
                     std::span<std::uint64_t> words, std::size_t& clipped) override {
    const std::vector<float> values = own_plus_residual(levels.extent, residual);
    const std::vector<LevelRow> rounded = rounded_rows(levels, rows, scales);
    std::vector<unsigned short> numbers(coordinates_of(levels.rows));
    unsigned found = 0;
    for_each_launch(levels, [&](const Launch& launch) {
      run_on_cpu(
          spillway_round_float32, launch,
          RoundArguments{tensor_of(levels, values.data()), rounded.data(), numbers.data(), &found,
                         launch.rows, levels.rank, static_cast<float>(levels.code->range)});
    });
    clipped = found;
    std::vector<unsigned long long> packed(words.size());
    const std::lock_guard lock(mutex());
    run_on_cpu(spillway_pack_levels,
               Launch{{}, static_cast<unsigned>((packed.size() + 31) / 32), 32, 0},
               PackArguments{numbers.data(), packed.data(), numbers.size(), packed.size(),
                             lanes_of(levels.lanes)});
    std::copy(packed.begin(), packed.end(), words.begin());
    return {};
  }

  base::Status decode_sums(const collective::DeviceLevels& levels,
                           const collective::DeviceLevelSums& sums) override {
    read_sums(levels, sums, {}, Store::kWrite, output_ + levels.extent.first);
    return {};
  }

  base::Status settle_levels(const collective::DeviceLevels& levels,
                             const collective::DeviceLevelSums& sums,
                             const std::vector<bool>& not_finite, float* residual) override {
    const std::vector<float> values = own_plus_residual(levels.extent, residual);
    std::copy(values.begin(), values.end(), residual);
    read_sums(levels, sums, not_finite, Store::kSubtract, residual);
    return {};
  }

 private:
  static LevelTensor tensor_of(const collective::DeviceLevels& levels, const float* values) {
    return {values, levels.rows.tensor_length(), levels.key, levels.rows.row_log2()};
  }
  template <typename Run>
  static void for_each_launch(const collective::DeviceLevels& levels, const Run& run) {
    const std::lock_guard lock(mutex());
    for (const Launch& launch : launches_of(levels.rows, 0, levels.rows.row_count())) {
      run(launch);
    }
  }
  static void read_sums(const collective::DeviceLevels& levels,
                        const collective::DeviceLevelSums& sums, const std::vector<bool>& cleared,
                        Store store, float* values) {
    const std::vector<LevelRow> rows = decoded_rows(levels, sums, cleared);
    const std::vector<ChunkShare> chunks = chunk_shares(levels, sums);
    const std::vector<unsigned long long> words(sums.words.begin(), sums.words.end());
    for_each_launch(levels, [&](const Launch& launch) {
      run_on_cpu(spillway_decode_sums_float32, launch,
                 SumArguments{tensor_of(levels, values), words.data(), chunks.data(), rows.data(),
                              launch.rows, lanes_of(levels.lanes), store});
    });
  }

  // Four values per thread.
  static Launch launch_for(std::size_t count) {
    return {{}, static_cast<unsigned>((count + 127) / 128), 32, 0};
  }

  std::vector<float> own_plus_residual(const collective::Extent& extent,
                                       const float* residual) const {
    const std::lock_guard lock(mutex());
    std::vector<float> values(extent.count);
    run_on_cpu(spillway_widen_float32, launch_for(extent.count),
               WidenArguments{input_ + extent.first, values.data(), residual, extent.count});
    return values;
  }

  static void clear_unless_finite(float* values, std::size_t count) {
    const std::lock_guard lock(mutex());
    unsigned found = 0;
    for (const auto kernel : {spillway_find_not_finite, spillway_clear_if_found}) {
      run_on_cpu(kernel, launch_for(count), FiniteArguments{values, &found, count});
    }
  }

  static const CodeTables& tables() {
    static const CodeTables made = make_code_tables();
    return made;
  }
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }

  static void encode_values(const packetize::PacketPlan& plan, std::uint64_t key,
                            const float* values, const float* factors,
                            packetize::KeptPlanes& coded) {
    const std::lock_guard lock(mutex());
    std::vector<RowCode> rows(coded.rows.size());
    for (const Launch& launch : launches_of(plan.layout(), 0, rows.size())) {
      run_on_cpu(spillway_encode_float32, launch,
                 EncodeArguments{values, coded.memory.get(), rows.data(), factors, &tables(), key,
                                 shape_of(plan), launch.rows});
    }
    for (std::size_t row = 0; row < rows.size(); ++row) {
      coded.rows[row] = {rows[row].scale, rows[row].rotations};
    }
    for (std::size_t packet = 0; packet < coded.bytes.size(); ++packet) {
      coded.bytes[packet] =
          static_cast<std::uint16_t>(plan.place(packet).count / 8 * plan.planes());
    }
  }

  static void decode_values(const packetize::PacketPlan& plan, std::uint64_t key,
                            const packetize::KeptPlanes& came, const std::uint16_t* received,
                            Store store, float* values) {
    const std::lock_guard lock(mutex());
    std::vector<RowCode> rows;
    for (const codec::RowHeader& row : came.rows) {
      rows.push_back({row.scale, row.rotations});
    }
    for (const Launch& launch : launches_of(plan.layout(), 0, rows.size())) {
      run_on_cpu(spillway_decode_float32, launch,
                 DecodeArguments{came.memory.get(), received, rows.data(), values, &tables(), key,
                                 shape_of(plan), launch.rows, 0, store});
    }
  }

  const float* input_;
  float* output_;
  std::vector<float> host_;
};

}  // namespace spillway::gpu
