// SPDX-License-Identifier: Apache-2.0
#include "runtime/wait_notice.h"

#include <gtest/gtest.h>

namespace spillway::runtime {
namespace {

constexpr base::Instant kBegin{base::seconds(100)};

TEST(WaitNotice, ComesAfterAWhileAndThenHalfAsOften) {
  WaitNotice notice(kBegin);
  EXPECT_FALSE(notice.is_due(kBegin + kFirstNotice - base::nanoseconds(1)));
  EXPECT_TRUE(notice.is_due(kBegin + kFirstNotice));
  EXPECT_FALSE(notice.is_due(kBegin + kFirstNotice));
  EXPECT_EQ(notice.next(), kBegin + kFirstNotice * 2);
  EXPECT_TRUE(notice.is_due(kBegin + kFirstNotice * 2));
  EXPECT_EQ(notice.next(), kBegin + kFirstNotice * 4);
}

TEST(WaitNotice, WhoLooksLateIsToldOnce) {
  WaitNotice notice(kBegin);
  EXPECT_TRUE(notice.is_due(kBegin + kFirstNotice * 5));
  EXPECT_FALSE(notice.is_due(kBegin + kFirstNotice * 5));
  EXPECT_EQ(notice.next(), kBegin + kFirstNotice * 8);
}

}  // namespace
}  // namespace spillway::runtime
