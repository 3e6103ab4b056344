// SPDX-License-Identifier: Apache-2.0
#include "observe/operation_observer.h"

#include <gtest/gtest.h>

#include "observe/observe_testing.h"

namespace spillway::runtime {
namespace {

class OperationObserverTest : public ::testing::Test {
 protected:
  void run(collective::DataType type, bool tolerant) {
    collective::Operation operation;
    operation.type = type;
    operation.count = 1000;
    if (tolerant) {
      operation.tolerance.emplace();
    }
    observer_.begin(1, operation, base::Instant{});
    collective::OperationReport report;
    report.operation = operation;
    report.peers.resize(1);
    observer_.end(1, base::Status(), report);
  }

  CapturedLog log_;
  OperationObserver observer_{Identity{.rank = 0, .world = 1}, ObserverConfig{.records = 4}};
};

TEST_F(OperationObserverTest, SaysOnceThatTolerantFloat64LosesRange) {
  run(collective::DataType::kFloat64, true);
  run(collective::DataType::kFloat64, true);
  EXPECT_TRUE(log_.says("values beyond 3.4e38 count as not finite"));
  EXPECT_EQ(log_.lines().size(), 1U);
}

TEST_F(OperationObserverTest, SaysNothingWhereNoRangeIsLost) {
  run(collective::DataType::kFloat64, false);
  run(collective::DataType::kFloat32, true);
  EXPECT_EQ(log_.text(), "");
}

}  // namespace
}  // namespace spillway::runtime
