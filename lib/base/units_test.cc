// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include <gtest/gtest.h>

#include <concepts>

#include "base/clock.h"

namespace spillway::base {
namespace {

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

}  // namespace
}  // namespace spillway::base
