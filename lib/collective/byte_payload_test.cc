// SPDX-License-Identifier: Apache-2.0
#include "collective/byte_payload.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "collective/reduction.h"

namespace spillway::collective {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kCount = 1000;  // floats: some packets, the last of them padded
constexpr float kUntouched = -7.0F;

std::vector<float> floats(float first) {
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), first);
  return values;
}

const std::uint8_t* bytes_of(const std::vector<float>& values) {
  return reinterpret_cast<const std::uint8_t*>(values.data());
}

std::uint8_t* bytes_of(std::vector<float>& values) {
  return reinterpret_cast<std::uint8_t*>(values.data());
}

// One message under one protection, and what its receiver adds to it.
class FoldSinkTest : public testing::TestWithParam<wire::Protection> {
 protected:
  FoldSinkTest()
      : layout_(ByteLayout::make({.mtu = 1500}).value()),
        auth_(wire::PacketAuth::of_secret(Bytes(32, 9), GetParam()).value()) {}

  Bytes packet(std::uint16_t index) {
    ByteSource source(bytes_of(sent_), sent_.size() * sizeof(float), layout_);
    Bytes out(SPILLWAY_MAX_PACKET);
    wire::DataStamp stamp;
    stamp.packet = index;
    stamp.number = index + 1U;
    out.resize(source.write(stamp, auth_, out));
    return out;
  }

  Fold fold(ReduceOp op, bool own_is_first) {
    return {.type = DataType::kFloat32,
            .op = op,
            .average_over = op == ReduceOp::kAverage ? std::size_t{2} : 0,
            .own = bytes_of(own_),
            .own_is_first = own_is_first,
            .target = bytes_of(target_)};
  }

  unsigned take(FoldSink& sink, const Bytes& bytes) {
    wire::OpenedPacket opened;
    EXPECT_EQ(wire::open_data_packet(bytes, auth_, opened), wire::PacketFault::kNone);
    return sink.take(opened, bytes);
  }

  std::vector<float> expected(ReduceOp op, bool own_is_first) const {
    std::vector<float> sum(kCount);
    std::array<const std::uint8_t*, 2> addends = {bytes_of(sent_), bytes_of(own_)};
    if (own_is_first) {
      std::swap(addends[0], addends[1]);
    }
    reduce(DataType::kFloat32, op, addends, kCount, bytes_of(sum), 2);
    return sum;
  }

  std::uint16_t packets() const {
    return static_cast<std::uint16_t>(layout_.packets(kCount * sizeof(float)));
  }

  ByteLayout layout_;
  wire::PacketAuth auth_;
  std::vector<float> sent_ = floats(0.5F);
  std::vector<float> own_ = floats(100.0F);
  std::vector<float> target_ = std::vector<float>(kCount, kUntouched);
};

TEST_P(FoldSinkTest, SumsAsReduceDoes) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
    for (const bool own_is_first : {false, true}) {
      FoldSink sink(fold(op, own_is_first), kCount * sizeof(float), layout_);
      for (std::uint16_t index = packets(); index-- > 0;) {
        EXPECT_EQ(take(sink, packet(index)), ByteLayout::kPlanes);
      }
      EXPECT_EQ(target_, expected(op, own_is_first));
    }
  }
}

TEST_P(FoldSinkTest, MayWriteWhereItsAddendIs) {
  Fold in_place = fold(ReduceOp::kSum, true);
  const std::vector<float> sum = expected(ReduceOp::kSum, true);
  in_place.target = bytes_of(own_);
  FoldSink sink(in_place, kCount * sizeof(float), layout_);
  for (std::uint16_t index = 0; index < packets(); ++index) {
    take(sink, packet(index));
  }
  EXPECT_EQ(own_, sum);
}

TEST_P(FoldSinkTest, AddsNothingOfACutOrDamagedPacket) {
  FoldSink sink(fold(ReduceOp::kSum, false), kCount * sizeof(float), layout_);
  Bytes damaged = packet(0);
  damaged[damaged.size() - SPILLWAY_CHECK_SIZE - 1] ^= 1;
  EXPECT_EQ(take(sink, damaged), 1U);
  Bytes cut = packet(1);
  cut.pop_back();
  EXPECT_EQ(take(sink, cut), 1U);
  EXPECT_EQ(target_, std::vector<float>(kCount, kUntouched));
}

TEST_P(FoldSinkTest, RefusesWhatContradictsItsMessage) {
  FoldSink shorter(fold(ReduceOp::kSum, false), layout_.bytes_per_packet, layout_);
  EXPECT_EQ(take(shorter, packet(1)), 0U);
  FoldSink ends_sooner(fold(ReduceOp::kSum, false), sizeof(float), layout_);
  EXPECT_EQ(take(ends_sooner, packet(0)), 0U);
  EXPECT_EQ(target_, std::vector<float>(kCount, kUntouched));
}

INSTANTIATE_TEST_SUITE_P(, FoldSinkTest,
                         testing::Values(wire::Protection::kTags, wire::Protection::kEncryption));

}  // namespace
}  // namespace spillway::collective
