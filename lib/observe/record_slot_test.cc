// SPDX-License-Identifier: Apache-2.0
#include "observe/record_slot.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "observe/observe_testing.h"

namespace spillway::runtime {
namespace {

TEST(RecordSlot, IsEmptyAndThenHoldsWhatWasPublishedLast) {
  RecordSlot slot;
  OperationRecord record;
  EXPECT_EQ(slot.read(record), RecordSlot::Sight::kEmpty);
  for (std::uint32_t i = 1; i < 5; ++i) {
    slot.publish(uniform_record(i));
    ASSERT_EQ(slot.read(record), RecordSlot::Sight::kRead);
    EXPECT_EQ(record.sequence, i);
    EXPECT_TRUE(is_uniform(record));
  }
}

// Records are made in advance, so the writer only writes.
TEST(RecordSlot, AReaderNeverSeesAMixture) {
  const OperationRecord records[] = {uniform_record(1), uniform_record(2), uniform_record(3)};
  RecordSlot slot;
  slot.publish(records[0]);
  std::atomic<bool> ends{false};
  std::thread writer([&] {
    for (std::size_t i = 0; !ends.load(std::memory_order_relaxed); ++i) {
      slot.publish(records[i % 3]);
    }
  });
  std::uint64_t seen = 0;
  std::uint64_t mixed = 0;
  for (int i = 0; i < 200'000 || seen == 0; ++i) {
    OperationRecord record;
    if (slot.read(record) == RecordSlot::Sight::kRead) {
      ++seen;
      mixed += is_uniform(record) ? 0 : 1;
    }
  }
  ends.store(true);
  writer.join();
  EXPECT_GT(seen, 0U);
  EXPECT_EQ(mixed, 0U);
}

}  // namespace
}  // namespace spillway::runtime
