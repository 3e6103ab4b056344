// SPDX-License-Identifier: Apache-2.0
#include "net/send_pacer.h"

#include <gtest/gtest.h>

namespace spillway::net {
namespace {

constexpr base::Instant at(std::int64_t microseconds) {
  return base::Instant(base::microseconds(microseconds));
}

TEST(SendPacer, WithoutARateNeverHolds) {
  SendPacer pacer(base::BitRate(), base::bytes(1000));
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(pacer.may_send(at(0)));
    pacer.sent(base::bytes(1'000'000), at(0));
  }
}

TEST(SendPacer, KeepsTheRateOverTime) {
  SendPacer pacer(base::gigabits_per_second(1), base::bytes(4500));
  std::int64_t bytes = 0;
  for (std::int64_t now = 0; now < 10'000; ++now) {
    while (pacer.may_send(at(now))) {
      pacer.sent(base::bytes(1500), at(now));
      bytes += 1500;
    }
  }
  // 10 ms at 1 Gb/s, plus at most a burst, half a burst of debt and one more packet.
  EXPECT_GE(bytes, 1'250'000);
  EXPECT_LE(bytes, 1'250'000 + 4500 + 2250 + 1500);
}

TEST(SendPacer, SavesNoMoreThanABurst) {
  SendPacer pacer(base::gigabits_per_second(1), base::bytes(3000));
  pacer.sent(base::bytes(1500), at(0));
  std::int64_t bytes = 0;
  while (pacer.may_send(at(1'000'000))) {
    pacer.sent(base::bytes(1500), at(1'000'000));
    bytes += 1500;
  }
  EXPECT_EQ(bytes, 6000);  // the burst, half of one as debt, and the rest of the last packet
}

TEST(SendPacer, SendsInTurnsOfHalfABurst) {
  SendPacer pacer(base::gigabits_per_second(1), base::bytes(24'000));
  int turns = 0;
  int packets = 0;
  bool was_sending = false;
  for (std::int64_t now = 1000; now < 11'000; ++now) {
    const bool is_sending = pacer.may_send(at(now));
    turns += is_sending && !was_sending ? 1 : 0;
    was_sending = is_sending;
    while (pacer.may_send(at(now))) {
      pacer.sent(base::bytes(1500), at(now));
      ++packets;
    }
  }
  EXPECT_GE(packets / turns, 8);
}

TEST(SendPacer, SaysWhenItMaySendAgain) {
  SendPacer pacer(base::gigabits_per_second(1), base::Bytes());
  pacer.sent(base::bytes(12'500), at(50));
  EXPECT_FALSE(pacer.may_send(at(149)));
  EXPECT_EQ(pacer.next(), at(150));
  EXPECT_TRUE(pacer.may_send(pacer.next()));
}

}  // namespace
}  // namespace spillway::net
