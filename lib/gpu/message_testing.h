// SPDX-License-Identifier: Apache-2.0
//
// Expected kernel results from the codec's scalar oracle: messages as they lie in device memory,
// and tensors with every kind of row.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "codec/row_codec.h"
#include "codec/sample_data.h"
#include "collective/device_tensor.h"
#include "gpu/device_coder.h"
#include "packetize/packet_plan.h"

namespace spillway::gpu {

struct CodedMessage {
  std::vector<std::uint8_t> payload;
  std::vector<RowCode> rows;
  std::vector<std::uint16_t> received;  // complete packets
};

inline CodedMessage oracle_encode(const packetize::PacketPlan& plan, std::uint64_t key,
                                  std::span<const float> tensor) {
  const std::size_t stride = packetize::plane_stride(plan);
  CodedMessage message;
  message.payload.resize(packetize::plane_memory_bytes(plan));
  codec::RowEncoder encoder(codec::scalar_kernels());
  for (std::size_t index = 0; index < plan.layout().row_count(); ++index) {
    const codec::Row row = plan.layout().row(index);
    const codec::RowHeader header =
        encoder.encode(tensor.subspan(row.offset, row.values), row.log2_length,
                       {key, static_cast<std::uint32_t>(index)}, plan.planes());
    message.rows.push_back({header.scale, header.rotations});
    for (std::size_t slot = 0; slot < plan.packets_in(index); ++slot) {
      const std::size_t packet = plan.first_packet(index) + slot;
      const packetize::PacketPlace place = plan.place(packet);
      encoder.write_planes(place.first, place.count, plan.planes(),
                           message.payload.data() + packet * stride);
      message.received.push_back(static_cast<std::uint16_t>(place.count / 8 * plan.planes()));
    }
  }
  return message;
}

inline std::vector<float> oracle_decode(const packetize::PacketPlan& plan, std::uint64_t key,
                                        const CodedMessage& message, codec::Estimate estimate) {
  const std::size_t stride = packetize::plane_stride(plan);
  std::vector<float> tensor(plan.layout().tensor_length());
  for (std::size_t index = 0; index < plan.layout().row_count(); ++index) {
    const codec::Row row = plan.layout().row(index);
    std::vector<float> values(row.length());
    std::size_t arrived = 0;
    for (std::size_t slot = 0; slot < plan.packets_in(index); ++slot) {
      const std::size_t packet = plan.first_packet(index) + slot;
      const packetize::PacketPlace place = plan.place(packet);
      arrived += codec::decode_planes(
          codec::scalar_kernels(),
          {.bytes = {message.payload.data() + packet * stride, message.received[packet]},
           .count = place.count,
           .planes = plan.planes()},
          estimate, values.data() + place.first);
    }
    codec::finish_row(codec::scalar_kernels(),
                      {message.rows[index].scale, message.rows[index].rotations},
                      {key, static_cast<std::uint32_t>(index)}, row.log2_length, arrived, estimate,
                      values.data());
    std::copy_n(values.begin(), row.values, tensor.begin() + static_cast<long>(row.offset));
  }
  return tensor;
}

// Drops a tenth of the packets and trims a third.
inline void lose_some(CodedMessage& message, std::uint64_t seed) {
  base::RandomSequence random(seed);
  for (std::uint16_t& bytes : message.received) {
    const std::uint64_t draw = random.next_below(30);
    if (draw < 3) {
      bytes = 0;
    } else if (draw < 13) {
      bytes = static_cast<std::uint16_t>(random.next_below(std::uint64_t{bytes} + 1));
    }
  }
}

// The kinds of rows alternate, so that a tile of short rows contains several.
inline std::vector<float> mixed_tensor(std::size_t length, unsigned row_log2, std::uint64_t seed) {
  std::vector<float> tensor = codec::gaussian_values(length, seed);
  base::RandomSequence random(seed ^ 0x3172);
  const std::size_t full = std::size_t{1} << row_log2;
  for (std::size_t first = 0, kind = seed % 13; first < length; first += full, ++kind) {
    const std::span<float> row = std::span(tensor).subspan(first, std::min(full, length - first));
    const std::size_t some = random.next_below(row.size());
    switch (kind % 13) {
      case 1:  // spiky
        row[some] = 1000.0F;
        break;
      case 2:  // zeros
        std::fill(row.begin(), row.end(), 0.0F);
        break;
      case 3:  // one value
        std::fill(row.begin(), row.end(), -0.0F);
        row[some] = 3.0F;
        break;
      case 4:  // equal values: a lattice after one round
        std::fill(row.begin(), row.end(), 0.25F);
        break;
      case 5:
        row[some] = std::numeric_limits<float>::infinity();
        break;
      case 6:
        row[some] = std::numeric_limits<float>::quiet_NaN();
        break;
      case 7:  // squares overflow
        std::for_each(row.begin(), row.end(), [](float& value) { value *= 1e37F; });
        break;
      case 8:  // squares vanish, some values are denormal
        std::for_each(row.begin(), row.end(), [](float& value) { value *= 1e-38F; });
        break;
      case 9: {  // heavy tails
        const std::vector<float> heavy = codec::lognormal_values(row.size(), seed + first);
        std::copy(heavy.begin(), heavy.end(), row.begin());
        break;
      }
      case 10: {  // sparse
        const std::vector<float> sparse = codec::sparse_values(row.size(), 50, seed + first);
        std::copy(sparse.begin(), sparse.end(), row.begin());
        break;
      }
      case 11:  // denormals alone
        std::for_each(row.begin(), row.end(), [](float& value) { value *= 1e-44F; });
        break;
      default:  // Gaussian
        break;
    }
  }
  return tensor;
}

struct MessageCase {
  std::size_t length;
  unsigned row_log2;
  unsigned precision;
  packetize::PacketLimits limits = {};

  packetize::PacketPlan plan() const {
    return packetize::PacketPlan::make(length, limits,
                                       {.precision = precision, .row_log2 = row_log2})
        .value();
  }
  std::string name() const {
    return std::to_string(length) + " values, rows of 2^" + std::to_string(row_log2) + ", " +
           std::to_string(precision) + " bits, MTU " + std::to_string(limits.mtu);
  }
};

// Every row length, last rows, precisions of every kind, and packets that end inside blocks.
inline std::vector<MessageCase> message_cases() {
  const packetize::PacketLimits large{.mtu = 9000, .trim_bytes = 0};
  const packetize::PacketLimits tiny{.mtu = 1500, .trim_bytes = 120};
  return {
      {1, 13, 8},
      {255, 13, 5},
      {300, 8, 1},
      {5'000, 8, 7, tiny},
      {20'000, 8, 16},
      {30'011, 9, 12},
      {50'000, 10, 8, tiny},
      {70'001, 11, 3, large},
      {100'003, 12, 17},
      {150'000, 13, 5},
      {200'001, 13, 16},
      {120'000, 13, 8, large},
      {130'000, 13, 32},
      {200'000, 14, 9},
      {270'000, 14, 24, tiny},
      {400'000, 15, 8},
      {300'000, 15, 16, large},
  };
}

// ------------------------------------------------------------------ sums
//
// A sum as its owner forms it, computed by the scalar oracle. It has the rank's own part, two
// contributions with lost and trimmed packets, one row that does not count, and factors. check()
// compares a device with it.

struct SumCase {
  explicit SumCase(std::size_t length)
      : own(codec::gaussian_values(length, 31)),
        sum{MessageCase{length, 12, 5}.plan(), {}, {}, MessageCase{length, 12, 16}.plan(), 0x5A5A} {
    std::vector<float> sums = own;
    for (const std::uint64_t seed : {32, 33}) {
      add_contribution(seed, sums);
    }
    const codec::RowLayout& layout = sum.sum_plan.layout();
    for (std::size_t row = 0; row < layout.row_count(); ++row) {
      sum.factors.push_back(row == 1 ? 1.5F : 1.0F / 3.0F);
      for (std::size_t i = 0; i < layout.row(row).values; ++i) {
        sums[layout.row(row).offset + i] *= sum.factors[row];
      }
    }
    coded = oracle_encode(sum.sum_plan, sum.key, sums);
    decoded = oracle_decode(sum.sum_plan, sum.key, coded, codec::Estimate::kUnbiased);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      sum.contributions[i].planes = &kept[i];
    }
  }
  SumCase(const SumCase&) = delete;

  // `output` is the device's output; after fetch_output() it is on the host.
  void check(
      collective::DeviceTensor& device, const std::vector<float>& output,
      const std::function<void()>& fetch_output = [] {}) const {
    packetize::KeptPlanes result = device.make_planes(sum.sum_plan).value();
    std::memset(result.memory.get(), 0, packetize::plane_memory_bytes(sum.sum_plan));
    const base::Status status = device.add_up({0, own.size()}, sum, result);
    ASSERT_TRUE(status.ok()) << status.message();
    fetch_output();
    EXPECT_EQ(result.bytes, coded.received);
    for (std::size_t packet = 0; packet < coded.received.size(); ++packet) {
      const base::ByteView planes = result.planes_of(sum.sum_plan, packet);
      EXPECT_EQ(std::memcmp(planes.data(),
                            coded.payload.data() + packet * packetize::plane_stride(sum.sum_plan),
                            planes.size()),
                0)
          << "packet " << packet;
    }
    EXPECT_TRUE(output == decoded);
  }

  std::vector<float> own;
  collective::DeviceSum sum;
  std::vector<packetize::KeptPlanes> kept;
  CodedMessage coded;
  std::vector<float> decoded;

 private:
  void add_contribution(std::uint64_t seed, std::vector<float>& sums) {
    const packetize::PacketPlan& plan = sum.contribution_plan;
    CodedMessage message = oracle_encode(plan, seed, codec::gaussian_values(own.size(), seed));
    lose_some(message, seed);
    packetize::KeptPlanes came = packetize::KeptPlanes::make(plan);
    std::memcpy(came.memory.get(), message.payload.data(), message.payload.size());
    for (std::size_t row = 0; row < message.rows.size(); ++row) {
      came.rows[row] = {message.rows[row].scale, message.rows[row].rotations};
    }
    came.bytes = message.received;
    // The first row of one contribution does not count.
    for (std::size_t packet = 0; seed == 33 && packet < plan.packets_in(0); ++packet) {
      message.received[packet] = 0;
    }
    const std::vector<float> part = oracle_decode(plan, seed, message, codec::Estimate::kUnbiased);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += part[i];
    }
    kept.push_back(std::move(came));
    sum.contributions.push_back({nullptr, message.received, seed});
  }
};

// A contribution with a residual, and the residual after the receipt.
struct ResidualCase {
  ResidualCase(std::size_t length, bool is_finite)
      : plan(MessageCase{length, 12, 3}.plan()),
        own(codec::gaussian_values(length, 41)),
        before(codec::gaussian_values(length, 42)) {
    if (!is_finite) {
      own[length / 2] = std::numeric_limits<float>::infinity();
    }
    kept = own;
    for (std::size_t i = 0; i < length; ++i) {
      kept[i] += before[i];
    }
    coded = oracle_encode(plan, kKey, kept);
    if (!is_finite) {
      std::fill(kept.begin(), kept.end(), 0.0F);
    }
    CodedMessage used = coded;
    lose_some(used, 43);
    received = used.received;
    settled = kept;
    const std::vector<float> part = oracle_decode(plan, kKey, used, codec::Estimate::kUnbiased);
    bool is_settled_finite = true;
    for (std::size_t i = 0; i < length; ++i) {
      settled[i] -= part[i];
      is_settled_finite = is_settled_finite && std::isfinite(settled[i]);
    }
    if (!is_settled_finite) {
      std::fill(settled.begin(), settled.end(), 0.0F);
    }
  }

  // `residual` is the device's residual, which holds `before`; `fetch` copies it to the host.
  void check(collective::DeviceTensor& device, float* residual,
             const std::function<std::vector<float>()>& fetch) const {
    packetize::KeptPlanes sent = device.make_planes(plan).value();
    ASSERT_TRUE(device.encode({0, own.size()}, plan, kKey, residual, sent).ok());
    EXPECT_TRUE(fetch() == kept);
    for (std::size_t packet = 0; packet < coded.received.size(); ++packet) {
      const base::ByteView planes = sent.planes_of(plan, packet);
      EXPECT_EQ(planes.size(), coded.received[packet]);
      EXPECT_EQ(
          std::memcmp(planes.data(), coded.payload.data() + packet * packetize::plane_stride(plan),
                      planes.size()),
          0)
          << "packet " << packet;
    }
    ASSERT_TRUE(device.settle({0, own.size()}, plan, kKey, sent, received, residual).ok());
    EXPECT_TRUE(fetch() == settled);
  }

  static constexpr std::uint64_t kKey = 0xA5A5;
  packetize::PacketPlan plan;
  std::vector<float> own;
  std::vector<float> before;
  std::vector<float> kept;
  std::vector<float> settled;
  CodedMessage coded;
  std::vector<std::uint16_t> received;
};

}  // namespace spillway::gpu
