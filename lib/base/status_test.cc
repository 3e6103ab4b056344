// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <gtest/gtest.h>

namespace spillway::base {
namespace {

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

}  // namespace
}  // namespace spillway::base
