// SPDX-License-Identifier: Apache-2.0
//
// Strong units. Adding a duration to a byte count, or one point in time to another, does not
// compile. Each unit wraps one int64_t and costs nothing.
//
//   Duration  nanoseconds between two instants          Instant    nanoseconds since a clock's zero
//   Bytes     a size on the wire or in memory           BitRate    bits per second
//
// Limits: 2^63 ns is 292 years; callers must not overflow int64_t.
#pragma once

#include <compare>
#include <cstdint>

namespace spillway::base {

template <typename Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t count) : count_(count) {}

  constexpr std::int64_t count() const { return count_; }

  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.count_ + b.count_);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.count_ - b.count_);
  }
  friend constexpr Quantity operator*(Quantity a, std::int64_t factor) {
    return Quantity(a.count_ * factor);
  }
  friend constexpr Quantity operator/(Quantity a, std::int64_t divisor) {
    return Quantity(a.count_ / divisor);
  }
  constexpr Quantity& operator+=(Quantity other) { return *this = *this + other; }
  constexpr Quantity& operator-=(Quantity other) { return *this = *this - other; }

 private:
  std::int64_t count_ = 0;
};

using Duration = Quantity<struct DurationTag>;
using Bytes = Quantity<struct BytesTag>;
using BitRate = Quantity<struct BitRateTag>;

constexpr Duration nanoseconds(std::int64_t count) {
  return Duration(count);
}
constexpr Duration microseconds(std::int64_t count) {
  return Duration(count * 1'000);
}
constexpr Duration milliseconds(std::int64_t count) {
  return Duration(count * 1'000'000);
}
constexpr Duration seconds(std::int64_t count) {
  return Duration(count * 1'000'000'000);
}
constexpr double seconds_of(Duration duration) {
  return static_cast<double>(duration.count()) / 1e9;
}
constexpr double microseconds_of(Duration duration) {
  return static_cast<double>(duration.count()) / 1000.0;
}
constexpr Bytes bytes(std::int64_t count) {
  return Bytes(count);
}
constexpr BitRate bits_per_second(std::int64_t count) {
  return BitRate(count);
}
constexpr BitRate gigabits_per_second(std::int64_t count) {
  return BitRate(count * 1'000'000'000);
}

class Instant {
 public:
  constexpr Instant() = default;
  constexpr explicit Instant(Duration since_zero) : since_zero_(since_zero) {}

  constexpr Duration since_zero() const { return since_zero_; }

  friend constexpr auto operator<=>(Instant, Instant) = default;
  friend constexpr Instant operator+(Instant t, Duration d) { return Instant(t.since_zero_ + d); }
  friend constexpr Instant operator-(Instant t, Duration d) { return Instant(t.since_zero_ - d); }
  friend constexpr Duration operator-(Instant a, Instant b) {
    return a.since_zero_ - b.since_zero_;
  }

 private:
  Duration since_zero_;
};

// How long `size` occupies a link of `rate`, rounded up so that a link is never overdriven. The
// product needs 128 bits: a terabyte in bits times a billion overflows int64_t.
constexpr Duration transmission_time(Bytes size, BitRate rate) {
  const __int128 bit_nanoseconds = static_cast<__int128>(size.count()) * 8 * 1'000'000'000;
  return Duration(static_cast<std::int64_t>((bit_nanoseconds + rate.count() - 1) / rate.count()));
}

// How much a link of `rate` carries in `time`, rounded down.
constexpr Bytes carried_in(Duration time, BitRate rate) {
  const __int128 bit_nanoseconds = static_cast<__int128>(time.count()) * rate.count();
  return Bytes(static_cast<std::int64_t>(bit_nanoseconds / 8 / 1'000'000'000));
}

}  // namespace spillway::base
