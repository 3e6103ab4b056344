// SPDX-License-Identifier: Apache-2.0
//
// A sum as its owner forms it, computed by the scalar oracle. It has the rank's own part, two
// contributions with lost and trimmed packets, one row that does not count, and factors. check()
// compares a device with it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "collective/device_tensor.h"
#include "gpu/message_testing.h"

namespace spillway::gpu {

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
struct OwedCase {
  OwedCase(std::size_t length, bool is_finite)
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

  // `owed` is the device's residual, which holds `before`; `fetch` copies it to the host.
  void check(collective::DeviceTensor& device, float* owed,
             const std::function<std::vector<float>()>& fetch) const {
    packetize::KeptPlanes sent = device.make_planes(plan).value();
    ASSERT_TRUE(device.encode({0, own.size()}, plan, kKey, owed, sent).ok());
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
    ASSERT_TRUE(device.settle({0, own.size()}, plan, kKey, sent, received, owed).ok());
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
