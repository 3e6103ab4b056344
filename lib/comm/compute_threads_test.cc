// SPDX-License-Identifier: Apache-2.0
#include "comm/compute_threads.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace spillway::runtime {
namespace {

class NotedJob final : public collective::ComputeJob {
 public:
  void run() override { where = std::this_thread::get_id(); }

  std::thread::id where;
  std::promise<base::Status> done;
};

std::unique_ptr<ComputeThreads> pool_of(unsigned threads) {
  return std::move(
             ComputeThreads::start(threads,
                                   [](collective::ComputeJob& job, const base::Status& status) {
                                     static_cast<NotedJob&>(job).done.set_value(status);
                                   }))
      .value();
}

TEST(ComputeThreads, ARankHasAProcessorForAHelperOfFour) {
  EXPECT_TRUE(has_processor_for_helper(16, 4));
  EXPECT_FALSE(has_processor_for_helper(15, 4));
  EXPECT_FALSE(has_processor_for_helper(2, 1));
  EXPECT_TRUE(has_processor_for_helper(4, 0));
}

TEST(ComputeThreads, JobsWaitForTheCommunicatorsThreadWhereThereAreNoOthers) {
  const auto pool = pool_of(0);
  NotedJob job;
  pool->submit(job);
  EXPECT_EQ(pool->take_inline(), &job);
  EXPECT_EQ(pool->take_inline(), nullptr);
}

TEST(ComputeThreads, JobsThatSleepHaveThreadsOfTheirOwn) {
  const auto pool = pool_of(0);
  NotedJob job;
  job.sleeps = true;
  pool->submit(job);
  EXPECT_EQ(pool->take_inline(), nullptr);
  EXPECT_TRUE(job.done.get_future().get().ok());
  EXPECT_NE(job.where, std::this_thread::get_id());
}

TEST(ComputeThreads, AJobSaysWhyItCouldNotDoItsWork) {
  const auto pool = pool_of(1);
  NotedJob job;
  job.failure = {base::StatusCode::kLimitExceeded, "the device is full"};
  pool->submit(job);
  EXPECT_EQ(job.done.get_future().get().message(), "the device is full");
}

}  // namespace
}  // namespace spillway::runtime
