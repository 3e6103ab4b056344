// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "collective/tolerant/payload.h"

namespace spillway::collective {

namespace {

TEST(Receipt, IsTheSameAfterTheWay) {
  Receipt receipt;
  receipt.contributors = 5;
  receipt.absent = {false, true, false, false, false, false, false, false, true};
  receipt.used = {1400, 0, 37};
  const ReceiptShape shape{.rows = 9, .packets = 3};
  const std::vector<std::uint8_t> bytes = encode_receipt(receipt);
  ASSERT_EQ(bytes.size(), shape.bytes());
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{5, 0, 2, 1, 0x78, 5, 0, 0, 37, 0}));
  const Receipt parsed = parse_receipt(bytes, shape, 8);
  EXPECT_EQ(parsed.contributors, 5);
  EXPECT_EQ(parsed.absent, receipt.absent);
  EXPECT_EQ(parsed.used, receipt.used);
  EXPECT_FALSE(parsed.uses_nothing());
}

TEST(Receipt, IsNotBelievedBeyondTheGroup) {
  Receipt receipt;
  receipt.contributors = 60'000;
  EXPECT_EQ(parse_receipt(encode_receipt(receipt), {}, 4).contributors, 4);
  EXPECT_TRUE(receipt.uses_nothing());
}

TEST(Receipt, IsSentWhereSomebodyMayBeMissingOrKeepsWhatIs) {
  Operation operation;
  operation.tolerance = Tolerance{};
  const Group ranks{.rank = 0, .world = 4};
  const Group with_servers{.rank = 0, .world = 4, .servers = 1};
  EXPECT_FALSE(has_receipts(operation, ranks));
  EXPECT_TRUE(has_receipts(operation, with_servers));
  operation.tolerance->loss_bound_ppm = 0;
  EXPECT_FALSE(has_receipts(operation, with_servers));
  operation.tolerance->least_contributors = 0.5;
  EXPECT_TRUE(has_receipts(operation, ranks));
  operation.tolerance = Tolerance{.feedback_tensor = 3};
  EXPECT_TRUE(has_receipts(operation, ranks));
}

}  // namespace

}  // namespace spillway::collective
