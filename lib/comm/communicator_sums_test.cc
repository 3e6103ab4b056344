// SPDX-License-Identifier: Apache-2.0
//
// All-reduces with codes that switches can add, on real sockets without such a switch. Ranks and
// servers are threads of one process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>

#include "comm/communicator.h"
#include "comm/job_testing.h"

namespace spillway::comm {

namespace {

using collective::Codec;
using collective::Operation;
using collective::Tolerance;

constexpr std::uint16_t kWorkers = 4;
constexpr std::size_t kCount = 50'000;

// Sets an environment variable while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

// Runs `body` at every worker of a new group.
void run_group(const std::function<void(Communicator&)>& body, std::uint16_t servers = 0) {
  for (const testing_job::Served& server :
       testing_job::run_job(kWorkers, servers, body, "a secret of twenty-two")) {
    ASSERT_TRUE(server.end.has_value());
    EXPECT_TRUE(server.end->ok()) << server.end->message();
  }
}

std::vector<float> part_of(std::uint16_t rank) {
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    values[i] = std::sin(0.37F * static_cast<float>(i)) +
                0.3F * std::cos(0.11F * static_cast<float>(i) * static_cast<float>(rank + 1));
  }
  return values;
}

std::vector<double> exact_mean() {
  std::vector<double> mean(kCount);
  for (std::uint16_t rank = 0; rank < kWorkers; ++rank) {
    const std::vector<float> part = part_of(rank);
    for (std::size_t i = 0; i < kCount; ++i) {
      mean[i] += double{part[i]} / kWorkers;
    }
  }
  return mean;
}

// Squared error divided by energy.
template <typename Number>
double error_of(const std::vector<Number>& mean) {
  const std::vector<double> exact = exact_mean();
  double error = 0.0;
  double energy = 0.0;
  for (std::size_t i = 0; i < kCount; ++i) {
    error += (mean[i] - exact[i]) * (mean[i] - exact[i]);
    energy += exact[i] * exact[i];
  }
  return error / energy;
}

Operation mean_of(std::vector<float>& buffer, const std::optional<Tolerance>& tolerance) {
  Operation operation;
  operation.op = collective::ReduceOp::kAverage;
  operation.count = buffer.size();
  operation.tolerance = tolerance;
  operation.input = operation.output = buffer.data();
  return operation;
}

// The mean over all ranks, and the operation's report.
struct Mean {
  std::vector<float> values;
  collective::OperationReport report;
};
Mean mean_by(Communicator& communicator, const std::optional<Tolerance>& tolerance) {
  Mean mean{part_of(communicator.rank()), {}};
  const auto request = communicator.submit(mean_of(mean.values, tolerance));
  EXPECT_TRUE(request.ok()) << request.status().message();
  if (request.ok()) {
    const base::Status status = *(*request)->wait(std::nullopt);
    EXPECT_TRUE(status.ok()) << status.message();
    mean.report = (*request)->report();
  }
  return mean;
}

Tolerance tolerance_of(Codec codec) {
  return {.codec = codec, .precision = 4, .loss_bound_ppm = 0};
}

double error_bound(Codec codec) {
  return codec == Codec::kBlocks ? 1e-10 : 0.02;
}

class CommunicatorSums : public testing::TestWithParam<Codec> {};
INSTANTIATE_TEST_SUITE_P(Codes, CommunicatorSums, testing::Values(Codec::kLevels, Codec::kBlocks));

TEST_P(CommunicatorSums, AreTheSameEverywhereAndClose) {
  for (const std::uint16_t servers : {0, 2}) {
    std::mutex mutex;
    std::set<std::vector<float>> results;
    run_group(
        [&](Communicator& worker) {
          const Mean mean = mean_by(worker, tolerance_of(GetParam()));
          EXPECT_EQ(mean.report.contributors, kWorkers);
          const std::lock_guard lock(mutex);
          results.insert(mean.values);
        },
        servers);
    ASSERT_EQ(results.size(), 1U) << servers << " servers";
    EXPECT_LT(error_of(*results.begin()), error_bound(GetParam())) << servers << " servers";
  }
}

// A rank with all results may leave, even if others have not decoded theirs yet.
TEST(CommunicatorSum, RanksLeaveAsSoonAsTheyAreDone) {
  for (int round = 0; round < 12; ++round) {
    run_group([&](Communicator& worker) {
      EXPECT_EQ(mean_by(worker, tolerance_of(Codec::kLevels)).report.contributors, kWorkers);
    });
  }
}

// A step's rounding error is added to the next step, so the mean over steps converges.
TEST(CommunicatorSum, ErrorFeedbackMakesUpForWhatWasRoundedAway) {
  constexpr int kSteps = 16;
  for (const bool predicts : {false, true}) {
    for (const std::uint16_t servers : {0, 1}) {
      run_group(
          [&](Communicator& worker) {
            Tolerance tolerance = tolerance_of(Codec::kLevels);
            tolerance.feedback_tensor = 7;
            tolerance.predicts_scale = predicts;
            std::vector<double> total(kCount);
            double first = 0.0;
            for (int step = 0; step < kSteps; ++step) {
              const std::vector<float> values = mean_by(worker, tolerance).values;
              first = step == 0 ? error_of(values) : first;
              for (std::size_t i = 0; i < kCount; ++i) {
                total[i] += double{values[i]} / kSteps;
              }
            }
            // Without error feedback it would be first / kSteps.
            EXPECT_LT(error_of(total), first / (2 * kSteps)) << predicts << " " << servers;
          },
          servers);
    }
  }
}

TEST(CommunicatorSum, IsMadeOfWhatIsTolerantWhereTheEnvironmentSaysSo) {
  const Variable algorithm("SPILLWAY_ALGORITHM", "switch");
  run_group([](Communicator& worker) {
    const Mean few_bits = mean_by(worker, Tolerance{.precision = 5, .loss_bound_ppm = 0});
    EXPECT_EQ(few_bits.report.operation.tolerance->codec, Codec::kLevels);
    EXPECT_EQ(few_bits.report.operation.tolerance->precision, 8);
    EXPECT_LT(error_of(few_bits.values), 1e-3);
    const Mean many_bits = mean_by(worker, Tolerance{.precision = 16, .loss_bound_ppm = 0});
    EXPECT_EQ(many_bits.report.operation.tolerance->codec, Codec::kBlocks);
    EXPECT_LT(error_of(many_bits.values), 1e-10);
    const Mean exact = mean_by(worker, std::nullopt);
    EXPECT_FALSE(exact.report.operation.tolerance.has_value());
    EXPECT_NE(exact.report.algorithm, collective::Algorithm::kSwitch);
    EXPECT_LT(error_of(exact.values), 1e-12);
  });
}

// Coded operations need no switch, so they work with encryption too; several compute threads.
TEST(CommunicatorCodes, AreLearnedAndTheSameEverywhere) {
  for (const char* encrypts : {"0", "1"}) {
    const Variable encrypt("SPILLWAY_ENCRYPT", encrypts);
    for (const char* algorithm : {"direct", "ring"}) {
      const Variable way("SPILLWAY_ALGORITHM", algorithm);
      std::mutex mutex;
      std::set<std::vector<float>> results;
      run_group([&](Communicator& worker) {
        Tolerance tolerance{
            .codec = Codec::kEntropy, .precision = 8, .loss_bound_ppm = 0, .feedback_tensor = 7};
        Mean mean;
        for (int step = 0; step < 4; ++step) {
          tolerance.predicts_scale = step > 1;
          mean = mean_by(worker, tolerance);
        }
        EXPECT_EQ(mean.report.entropy.tables(), 0U);
        EXPECT_GT(mean.report.entropy.values(), 0U);
        EXPECT_STREQ(collective::algorithm_name(mean.report.algorithm), algorithm);
        const std::lock_guard lock(mutex);
        results.insert(mean.values);
      });
      ASSERT_EQ(results.size(), 1U);
      EXPECT_LT(error_of(*results.begin()), 5e-3);
    }
  }
}

// Integers at every fiftieth place, so nothing is rounded.
std::vector<float> sparse_part_of(std::uint16_t rank) {
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; i += 50) {
    values[i] = i == 0 ? 127.0F : static_cast<float>((i / 50 + rank) % 100 + 1);
  }
  return values;
}

TEST(CommunicatorCodes, SketchesOfWhatIsMostlyZeroAreExact) {
  run_group([](Communicator& worker) {
    std::vector<float> expected(kCount);
    for (std::uint16_t rank = 0; rank < kWorkers; ++rank) {
      const std::vector<float> part = sparse_part_of(rank);
      std::transform(part.begin(), part.end(), expected.begin(), expected.begin(), std::plus<>());
    }
    std::uint64_t predicted = 0;
    for (int step = 0; step < 4; ++step) {
      std::vector<float> values = sparse_part_of(worker.rank());
      Operation operation = mean_of(
          values,
          Tolerance{
              .codec = Codec::kSketch, .precision = 8, .loss_bound_ppm = 0, .feedback_tensor = 7});
      operation.op = collective::ReduceOp::kSum;
      const auto request = worker.submit(operation);
      ASSERT_TRUE(request.ok()) << request.status().message();
      const base::Status status = *(*request)->wait(std::nullopt);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(values, expected);
      predicted = (*request)->report().entropy.sketch.predicted;
    }
    EXPECT_EQ(predicted, (kCount + 49) / 50);
  });
}

TEST(CommunicatorSum, IsRefusedWherePacketsAreEncrypted) {
  const Variable encrypt("SPILLWAY_ENCRYPT", "1");
  run_group([](Communicator& worker) {
    std::vector<float> buffer = part_of(worker.rank());
    const auto refused = worker.submit(mean_of(buffer, tolerance_of(Codec::kLevels)));
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find("leave SPILLWAY_ENCRYPT away"), std::string::npos);
    EXPECT_LT(error_of(mean_by(worker, Tolerance{}).values), 1e-3);
  });
}

// ------------------------------------------------------------------ servers

// Communicators with parameter servers on real sockets; all ranks are threads of one process.

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

}  // namespace spillway::comm
