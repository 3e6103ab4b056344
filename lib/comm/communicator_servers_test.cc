// SPDX-License-Identifier: Apache-2.0
//
// Communicators with parameter servers on real sockets; all ranks are threads of one process.
#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "comm/job_testing.h"

namespace spillway::runtime {
namespace {

using collective::Operation;
using testing_job::run_job;
using testing_job::Served;

base::Status all_reduce(Communicator& communicator, std::vector<float>& buffer,
                        const std::optional<collective::Tolerance>& tolerance = {}) {
  Operation operation;
  operation.count = buffer.size();
  operation.tolerance = tolerance;
  operation.input = operation.output = buffer.data();
  const auto request = communicator.submit(operation);
  return request.ok() ? *(*request)->wait(std::nullopt) : request.status();
}

TEST(CommunicatorWithServers, SumsGoThroughThemAndTheyEndWithTheWorkers) {
  constexpr std::uint16_t kWorkers = 3;
  const std::vector<Served> served = run_job(kWorkers, 2, [](Communicator& worker) {
    EXPECT_EQ(worker.world(), 3);
    for (const std::size_t count : {1, 1000, 500'000}) {
      std::vector<float> buffer(count, static_cast<float>(worker.rank() + 1));
      const base::Status status = all_reduce(worker, buffer);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(buffer, std::vector<float>(count, 6.0F));
    }
    std::vector<float> coded(10'000, 1.0F);
    ASSERT_TRUE(all_reduce(worker, coded, collective::Tolerance{}).ok());
    ASSERT_NEAR(coded[77], 3.0F, 0.1F);
  });
  for (const Served& server : served) {
    ASSERT_TRUE(server.end.has_value());
    EXPECT_TRUE(server.end->ok()) << server.end->message();
    EXPECT_EQ(server.totals.operations, 4U);
    EXPECT_EQ(server.totals.tensor_bytes, 4 * (1U + 1000 + 500'000 + 10'000));
    EXPECT_EQ(server.totals.workers.size(), kWorkers);
  }
}

TEST(CommunicatorWithServers, AnAbortEndsTheServersToo) {
  const std::vector<Served> served = run_job(2, 1, [](Communicator& worker) {
    std::vector<float> buffer(100);
    ASSERT_TRUE(all_reduce(worker, buffer).ok());
    if (worker.rank() == 1) {
      ASSERT_TRUE(worker.abort("enough").ok());
    }
    EXPECT_FALSE(all_reduce(worker, buffer).ok());
  });
  ASSERT_TRUE(served[0].end.has_value());
  EXPECT_NE(served[0].end->message().find("rank 1 aborted"), std::string::npos)
      << served[0].end->message();
}

}  // namespace
}  // namespace spillway::runtime
