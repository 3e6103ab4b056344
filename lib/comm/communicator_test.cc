// SPDX-License-Identifier: Apache-2.0
//
// Communicators on real sockets; the ranks of a group are threads of one process.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <future>
#include <numeric>
#include <thread>

#include "comm/communicator.h"
#include "comm/compute_threads.h"
#include "harness/slowdown.h"

namespace spillway::comm {

namespace {

using collective::Kind;
using collective::Operation;
using collective::ReduceOp;

// A rank that waits for a processor is silent too, so silence must not count as death here.
CommunicatorConfig config_of(const UniqueId& id, std::uint32_t rank, std::uint32_t world) {
  CommunicatorConfig config;
  config.id = id;
  config.member = {rank, world};
  const base::Duration patience(harness::patience(std::chrono::seconds(60)).count());
  config.rendezvous_patience = patience;
  config.peer_timeout = base::seconds(3600);
  return config;
}

// Runs `body` at every rank of a new group, each on its own thread.
void run_group(std::uint32_t world, const std::function<void(Communicator&)>& body,
               const std::function<void(CommunicatorConfig&)>& adjust = {}) {
  const UniqueId id = create_unique_id(net::SocketAddress::parse("127.0.0.1:0").value()).value();
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorConfig config = config_of(id, rank, world);
      if (adjust) {
        adjust(config);
      }
      auto communicator = Communicator::create(config);
      ASSERT_TRUE(communicator.ok()) << communicator.status().message();
      body(**communicator);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

Operation all_reduce_of(std::vector<float>& buffer) {
  return {.count = buffer.size(), .input = buffer.data(), .output = buffer.data()};
}

base::Status run(Communicator& communicator, const Operation& operation) {
  const auto request = communicator.submit(operation);
  return request.ok() ? *(*request)->wait(std::nullopt) : request.status();
}

class Communicators : public testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Threads, Communicators, testing::Values(0U, 2U));

TEST_P(Communicators, SumsAreRightFromOneElementToMillions) {
  run_group(
      4,
      [](Communicator& communicator) {
        for (const std::size_t count : {1, 3, 1000, 100'000, 2'000'000}) {
          std::vector<float> input(count);
          for (std::size_t i = 0; i < count; ++i) {
            input[i] = static_cast<float>((i % 1000) * (communicator.rank() + 1U));
          }
          std::vector<float> output(count);
          const base::Status status =
              run(communicator, {.count = count, .input = input.data(), .output = output.data()});
          ASSERT_TRUE(status.ok()) << status.message();
          for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(output[i], static_cast<float>((i % 1000) * 10)) << i << " of " << count;
          }
        }
      },
      [](CommunicatorConfig& config) { config.threads = GetParam(); });
}

// Ranks that share no memory open streams with the first large all-reduce, and try them.
TEST(Communicator, LargeAllReducesTryStreamsWithTheSameBits) {
  ::setenv("SPILLWAY_LOCAL_COPY", "0", 1);
  for (const std::uint32_t world : {2U, 4U}) {
    std::vector<unsigned> on_streams(world);
    run_group(world, [&](Communicator& communicator) {
      std::vector<float> input(1'000'000);
      for (std::size_t i = 0; i < input.size(); ++i) {
        input[i] = static_cast<float>(i % 1013) / static_cast<float>(communicator.rank() + 3U);
      }
      std::vector<float> first(input.size());
      std::vector<float> output(input.size());
      for (unsigned call = 0; call < 60; ++call) {
        std::vector<float>& sum = call == 0 ? first : output;
        const auto request = communicator.submit(
            {.count = input.size(), .input = input.data(), .output = sum.data()});
        ASSERT_TRUE(request.ok()) << request.status().message();
        const base::Status status = *(*request)->wait(std::nullopt);
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_TRUE(call == 0 || output == first) << "all-reduce " << call;
        const bool is_stream = (*request)->report().carrier == transport::Carrier::kStream;
        on_streams[communicator.rank()] += is_stream ? 1 : 0;
      }
    });
    EXPECT_GT(on_streams[0], 0U);
    EXPECT_EQ(on_streams, std::vector<unsigned>(world, on_streams[0]));
  }
  ::unsetenv("SPILLWAY_LOCAL_COPY");
}

TEST(Communicator, ManyOperationsAreUnderWayAtOnce) {
  run_group(3, [](Communicator& communicator) {
    constexpr std::size_t kBuckets = 100;
    std::vector<std::vector<float>> buffers(kBuckets, std::vector<float>(20'000, 1.0F));
    std::vector<std::shared_ptr<Request>> requests;
    for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
      Operation operation = all_reduce_of(buffers[bucket]);
      operation.priority = static_cast<std::uint8_t>(bucket % 8);
      auto request = communicator.submit(operation);
      ASSERT_TRUE(request.ok());
      requests.push_back(*request);
    }
    for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
      ASSERT_TRUE(requests[bucket]->wait(std::nullopt)->ok());
      ASSERT_EQ(buffers[bucket].front(), 3.0F);
      ASSERT_EQ(buffers[bucket].back(), 3.0F);
    }
  });
}

TEST(Communicator, KeyedPacketsWorkAndAWrongKeyDoesNot) {
  const auto keyed = [](CommunicatorConfig& config) {
    config.secret = launch::Secret(std::string_view("a secret of twenty-two"));
  };
  run_group(
      2,
      [](Communicator& communicator) {
        std::vector<float> buffer(5000, 2.0F);
        ASSERT_TRUE(run(communicator, all_reduce_of(buffer)).ok());
        ASSERT_EQ(buffer[4999], 4.0F);
      },
      keyed);
}

TEST(Communicator, BadArgumentsAreRefusedBeforeAnyPacket) {
  run_group(2, [](Communicator& communicator) {
    Operation operation;
    operation.count = 10;
    EXPECT_FALSE(communicator.submit(operation).ok());
    std::vector<float> buffer(10);
    operation = all_reduce_of(buffer);
    operation.priority = 8;
    EXPECT_FALSE(communicator.submit(operation).ok());
    operation.priority = 7;
    operation.kind = Kind::kBroadcast;
    operation.root = 2;
    EXPECT_FALSE(communicator.submit(operation).ok());
    operation.root = 0;
    EXPECT_TRUE(run(communicator, operation).ok());
  });
}

TEST(Communicator, RanksThatDisagreeAreBothTold) {
  run_group(2, [](Communicator& communicator) {
    std::vector<float> buffer(communicator.rank() == 0 ? 1000 : 500);
    const base::Status status = run(communicator, all_reduce_of(buffer));
    ASSERT_FALSE(status.ok());
    const std::string other = "rank " + std::to_string(1 - communicator.rank());
    EXPECT_NE(status.message().find(other), std::string::npos) << status.message();
    EXPECT_FALSE(communicator.health().ok());
  });
}

// Rank 2 uses a different code or algorithm: no rank hangs, and every rank names rank 2.
TEST(Communicator, RanksThatCodeDifferentlyAreTold) {
  const auto coded = [](collective::Codec codec, std::uint8_t precision) {
    return collective::Tolerance{.codec = codec, .precision = precision, .loss_bound_ppm = 0};
  };
  const auto levels = coded(collective::Codec::kLevels, 4);
  auto predicted = levels;
  predicted.feedback_tensor = 7;
  predicted.predicts_scale = true;
  const std::optional<collective::Tolerance> others[] = {
      std::nullopt, coded(collective::Codec::kPlanes, 4), coded(collective::Codec::kBlocks, 4),
      coded(collective::Codec::kLevels, 8), predicted};
  for (const std::optional<collective::Tolerance>& other : others) {
    run_group(3, [&](Communicator& communicator) {
      std::vector<float> buffer(50'000, 1.0F);
      collective::Operation operation = all_reduce_of(buffer);
      operation.tolerance = communicator.rank() == 2 ? other : levels;
      const base::Status status = run(communicator, operation);
      ASSERT_EQ(status.code(), base::StatusCode::kMismatch) << status.message();
      EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("all ranks must call the same"), std::string::npos);
    });
  }
}

TEST(Communicator, AnAbortEndsOperationsEverywhere) {
  std::atomic<int> begun{0};
  run_group(3, [&begun](Communicator& communicator) {
    std::vector<float> buffer(1000);
    if (communicator.rank() == 2) {
      while (begun < 2) {
        std::this_thread::yield();
      }
      ASSERT_TRUE(communicator.abort("enough").ok());
    }
    const auto request = communicator.submit(all_reduce_of(buffer));
    ++begun;
    const base::Status status = request.ok() ? *(*request)->wait(std::nullopt) : request.status();
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find(communicator.rank() == 2 ? "enough" : "rank 2 aborted"),
              std::string::npos)
        << status.message();
  });
}

TEST(Communicator, CallbacksComeOnceWithTheOutcome) {
  run_group(2, [](Communicator& communicator) {
    std::atomic<int> calls{0};
    std::vector<float> buffer(100);
    auto request = communicator.submit(all_reduce_of(buffer), [&](const base::Status& status) {
      EXPECT_TRUE(status.ok());
      ++calls;
    });
    ASSERT_TRUE(request.ok());
    ASSERT_TRUE((*request)->wait(std::nullopt)->ok());
    ASSERT_TRUE(run(communicator, all_reduce_of(buffer)).ok());
    EXPECT_EQ(calls, 1);
  });
}

TEST(Communicator, AChildOfForkIsRefused) {
  run_group(1, [](Communicator& communicator) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::vector<float> buffer(10);
      const auto request = communicator.submit(all_reduce_of(buffer));
      const bool refused =
          !request.ok() && request.status().message().find("fork") != std::string::npos;
      ::_exit(refused ? 0 : 1);
    }
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

TEST(Communicator, AWorldOfOneCopies) {
  run_group(1, [](Communicator& communicator) {
    const std::vector<float> input(100, 5.0F);
    std::vector<float> output(100);
    const Operation operation{
        .op = ReduceOp::kAverage, .count = 100, .input = input.data(), .output = output.data()};
    ASSERT_TRUE(run(communicator, operation).ok());
    EXPECT_EQ(output, input);
  });
}

// ------------------------------------------------------------------ compute threads

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

}  // namespace spillway::comm
