// SPDX-License-Identifier: Apache-2.0
//
// Tests of the small values: bytes, units, status, clock and random.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <concepts>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/status.h"
#include "base/units.h"

namespace spillway::base {

namespace {

// ------------------------------------------------------------------ bytes

TEST(ByteWriter, WritesLittleEndianAndReaderReadsItBack) {
  std::array<std::uint8_t, 7> bytes{};
  ByteWriter writer(bytes);
  writer.write<std::uint8_t>(0xAB);
  writer.write<std::uint16_t>(0x1234);
  writer.write<float>(1.0F);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(bytes, (std::array<std::uint8_t, 7>{0xAB, 0x34, 0x12, 0, 0, 0x80, 0x3F}));

  ByteReader reader(bytes);
  EXPECT_EQ(reader.read<std::uint8_t>(), 0xAB);
  EXPECT_EQ(reader.read<std::uint16_t>(), 0x1234);
  EXPECT_EQ(reader.read<float>(), 1.0F);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0U);
}

TEST(ByteReader, TurnsBadAtTheFirstReadPastTheEndAndStaysBad) {
  const std::array<std::uint8_t, 3> bytes{1, 2, 3};
  ByteReader reader(bytes);
  EXPECT_EQ(reader.read<std::uint32_t>(), 0U);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.read<std::uint8_t>(), 0);  // although one byte is left
  EXPECT_TRUE(reader.take(1).empty());
}

TEST(ByteWriter, NeverWritesPastItsSpan) {
  std::array<std::uint8_t, 4> bytes{9, 9, 9, 9};
  ByteWriter writer(MutableByteView(bytes).first(3));
  writer.write<std::uint16_t>(0);
  writer.write<std::uint16_t>(0);
  EXPECT_FALSE(writer.ok());
  EXPECT_EQ(bytes, (std::array<std::uint8_t, 4>{0, 0, 9, 9}));
}

// ------------------------------------------------------------------ units

template <typename A, typename B>
concept Addable = requires(A a, B b) {
  a + b;
};

TEST(Units, DoNotMix) {
  static_assert(Addable<Duration, Duration>);
  static_assert(!Addable<Duration, Bytes>);
  static_assert(!Addable<Instant, Instant>);
  static_assert(Addable<Instant, Duration>);
  static_assert(std::same_as<decltype(Instant() - Instant()), Duration>);
}

TEST(Units, TransmissionTimeRoundsUpAndDoesNotOverflow) {
  EXPECT_EQ(transmission_time(bytes(1250), gigabits_per_second(10)), microseconds(1));
  EXPECT_EQ(transmission_time(bytes(1), bits_per_second(3'000'000'000)), nanoseconds(3));
  EXPECT_EQ(transmission_time(bytes(1'000'000'000'000), gigabits_per_second(1)), seconds(8000));
}

// ------------------------------------------------------------------ status

TEST(Status, DefaultIsOkAndErrorsCarryCodeAndMessage) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().to_string(), "ok");
  const Status error = invalid_argument("trim size 40 is below the header");
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(error.to_string(), "invalid-argument: trim size 40 is below the header");
}

TEST(Status, ScopesSayWhatToRebuild) {
  EXPECT_EQ(error_scope(StatusCode::kOk), ErrorScope::kNone);
  EXPECT_EQ(error_scope(StatusCode::kInvalidArgument), ErrorScope::kCall);
  EXPECT_EQ(error_scope(StatusCode::kCorrupt), ErrorScope::kPacket);
  EXPECT_EQ(error_scope(StatusCode::kPeerFailed), ErrorScope::kGroup);
  EXPECT_EQ(error_scope(StatusCode::kUnavailable), ErrorScope::kProcess);
}

TEST(Result, HoldsAValueOrAnError) {
  Result<int> good = 7;
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 7);
  const Result<int> bad = Status(StatusCode::kMalformed, "short");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), StatusCode::kMalformed);
}

TEST(ResultDeathTest, TakingTheValueOfAnErrorIsABug) {
  const Result<int> bad = Status(StatusCode::kMalformed, "short");
  EXPECT_DEATH((void)bad.value(), "check failed");
}

// ------------------------------------------------------------------ clock

TEST(ManualClock, MovesOnlyWhenTold) {
  ManualClock clock;
  const Instant start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(milliseconds(5));
  EXPECT_EQ(clock.now() - start, milliseconds(5));
}

TEST(ManualClockDeathTest, NeverGoesBack) {
  ManualClock clock;
  EXPECT_DEATH(clock.advance(Duration(-1)), "check failed");
}

TEST(MonotonicClock, DoesNotGoBack) {
  const MonotonicClock clock;
  const Instant first = clock.now();
  EXPECT_LE(first, clock.now());
}

TEST(DurationSummary, PercentilesAreByNearestRank) {
  std::vector<Duration> durations;
  for (std::int64_t i = 200; i >= 1; --i) {
    durations.push_back(microseconds(i));
  }
  const DurationSummary summary = summarise(durations);
  EXPECT_EQ(summary.count, 200U);
  EXPECT_EQ(summary.mean, nanoseconds(100'500));
  EXPECT_EQ(summary.p50, microseconds(100));
  EXPECT_EQ(summary.p99, microseconds(198));
  EXPECT_EQ(summary.max, microseconds(200));
}

TEST(DurationSummary, NoDurationsAreZeroAndOneIsItself) {
  EXPECT_EQ(summarise({}).count, 0U);
  EXPECT_EQ(summarise({}).max, Duration());
  const DurationSummary one = summarise({microseconds(7)});
  EXPECT_EQ(one.p50, microseconds(7));
  EXPECT_EQ(one.p99, microseconds(7));
}

// ------------------------------------------------------------------ random

// Published known-answer vectors of Philox 4x32-10 (Random123): these values are wire format.
TEST(RandomBlock, MatchesThePublishedVectors) {
  EXPECT_EQ(random_block(0, {0, 0, 0, 0}),
            (RandomBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(random_block(0xffffffffffffffff, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (RandomBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(random_block(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (RandomBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomBlock, IsComputableAtCompileTime) {
  static_assert(random_block(0, {0, 0, 0, 0})[0] == 0x6627e8d5);
}

TEST(DeriveKey, SeparatesIdentities) {
  EXPECT_NE(derive_key(1, {0, 0, 0, 0}), derive_key(1, {1, 0, 0, 0}));
  EXPECT_NE(derive_key(1, {0, 0, 0, 0}), derive_key(2, {0, 0, 0, 0}));
}

TEST(RandomSequence, RepeatsForTheSameKeyAndDrawsInsideBounds) {
  RandomSequence a(42);
  RandomSequence b(42);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(a.next_word(), b.next_word());
    EXPECT_LT(a.next_below(7), 7U);
    b.next_below(7);
    const double unit = a.next_unit();
    EXPECT_TRUE(unit >= 0.0 && unit < 1.0);
    b.next_unit();
  }
}

TEST(RandomSequence, GaussianHasUnitMomentsAndNormalKurtosis) {
  RandomSequence random(3);
  constexpr int kDraws = 200000;
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double z = random.next_gaussian();
    sum += z;
    squares += z * z;
    fourths += z * z * z * z;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1.0, 0.02);
  EXPECT_NEAR(fourths / kDraws, 3.0, 0.15);
}

}  // namespace

}  // namespace spillway::base
