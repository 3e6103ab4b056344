// SPDX-License-Identifier: Apache-2.0
//
// Parameter servers in the simulated network: exact and tolerant all-reduces through them, workers
// that are late, absent or disagree, and servers that die.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/random.h"
#include "codec/sample_data.h"
#include "collective/reduction.h"
#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

using collective::DataType;
using collective::Kind;
using collective::Operation;
using collective::ReduceOp;
using collective::Tolerance;

#ifdef SPILLWAY_SANITIZED
constexpr unsigned kLess = 8;
#else
constexpr unsigned kLess = 1;
#endif

// The workers' tensors of one operation.
struct Tensors {
  Tensors(std::uint16_t workers, std::size_t count, std::uint64_t seed)
      : input(workers, std::vector<float>(count)), output(input) {
    base::RandomSequence random(seed);
    for (std::vector<float>& tensor : input) {
      for (float& value : tensor) {
        value = static_cast<float>(random.next_gaussian());
      }
    }
  }

  Operation at(std::uint16_t worker, const Operation& operation) {
    return on_buffers(operation, input[worker].data(), output[worker].data());
  }
  // The tree of pairs by rank.
  std::vector<float> sum() const {
    std::vector<const std::uint8_t*> sources;
    for (const std::vector<float>& tensor : input) {
      sources.push_back(reinterpret_cast<const std::uint8_t*>(tensor.data()));
    }
    std::vector<float> sum(input[0].size());
    collective::reduce(collective::DataType::kFloat32, ReduceOp::kSum, sources, sum.size(),
                       reinterpret_cast<std::uint8_t*>(sum.data()), 0);
    return sum;
  }
  std::vector<float> mean_of(std::size_t first, std::size_t count) const {
    std::vector<float> mean(input[0].size());
    for (std::size_t worker = first; worker < first + count; ++worker) {
      for (std::size_t i = 0; i < mean.size(); ++i) {
        mean[i] += input[worker][i] / static_cast<float>(count);
      }
    }
    return mean;
  }

  std::vector<std::vector<float>> input;
  std::vector<std::vector<float>> output;
};

Operation sum_of(std::size_t count) {
  Operation operation;
  operation.count = count;
  return operation;
}

Operation tolerant_mean_of(std::size_t count, const Tolerance& tolerance = {}) {
  Operation operation = sum_of(count);
  operation.op = ReduceOp::kAverage;
  operation.tolerance = tolerance;
  return operation;
}

void add_fault(SimulatedGroup& group, std::uint16_t rank, scenario::FaultKind kind, double share,
               base::Instant from = {}, base::Instant until = transport::kNever) {
  const std::string host = "host" + std::to_string(rank);
  for (const std::string& link : {host + "->switch0", "switch0->" + host}) {
    scenario::Fault fault;
    fault.kind = kind;
    fault.link = link;
    fault.share = share;
    fault.delay = base::microseconds(200);
    fault.from = from;
    fault.until = until;
    ASSERT_TRUE(group.network().add_fault(fault).ok()) << link;
  }
}

void pass(SimulatedGroup& group, base::Duration time) {
  group.network().run_until(group.network().now() + time);
}

void submit_everywhere(SimulatedGroup& group, Tensors& tensors, const Operation& operation) {
  for (std::uint16_t worker = 0; worker < tensors.input.size(); ++worker) {
    ASSERT_TRUE(group.submit(worker, tensors.at(worker, operation)).ok());
  }
}

void expect_good_ends(const SimulatedGroup& group, std::uint16_t ranks, std::size_t operations) {
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(group.endings(rank).size(), operations) << "rank " << rank;
    for (const Ending& ending : group.endings(rank)) {
      ASSERT_TRUE(ending.status.ok()) << ending.status.message();
    }
  }
}

TEST(Servers, SumsHaveTheBitsOfEveryOtherPlan) {
  for (const std::uint16_t servers : {1, 2, 5}) {
    constexpr std::uint16_t kWorkers = 4;
    const auto ranks = static_cast<std::uint16_t>(kWorkers + servers);
    SimulatedGroup group({.ranks = ranks, .servers = servers, .seed = servers});
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      add_fault(group, rank, scenario::FaultKind::kLoss, 0.02);
      add_fault(group, rank, scenario::FaultKind::kReorder, 0.1);
      add_fault(group, rank, scenario::FaultKind::kDuplicate, 0.02);
    }
    Tensors tensors(kWorkers, 100'000, 1);
    submit_everywhere(group, tensors, sum_of(100'000));
    ASSERT_TRUE(group.run(ranks));
    expect_good_ends(group, ranks, 1);
    for (const std::vector<float>& output : tensors.output) {
      ASSERT_EQ(output, tensors.sum());
    }
    EXPECT_EQ(group.endings(0).front().report.algorithm, collective::Algorithm::kServers);
  }
}

TEST(Servers, AverageDividesByTheWorkers) {
  SimulatedGroup group({.ranks = 5, .servers = 2});
  Tensors tensors(3, 3, 1);
  for (std::vector<float>& tensor : tensors.input) {
    tensor = {3.0F, 6.0F, -9.0F};
  }
  Operation operation = sum_of(3);
  operation.op = ReduceOp::kAverage;
  submit_everywhere(group, tensors, operation);
  ASSERT_TRUE(group.run(5));
  EXPECT_EQ(tensors.output[2], (std::vector<float>{3.0F, 6.0F, -9.0F}));
}

TEST(Servers, TolerantMeansAreTheSameAtAllWorkersWhateverIsLost) {
  constexpr std::uint16_t kWorkers = 5;
  constexpr std::uint16_t kRanks = 7;
  SimulatedGroup group({.ranks = kRanks, .servers = 2, .seed = 3});
  for (std::uint16_t worker = 0; worker < kWorkers; ++worker) {
    add_fault(group, worker, scenario::FaultKind::kLoss, 0.05);
  }
  Tensors tensors(kWorkers, 60'000, 2);
  submit_everywhere(group, tensors, tolerant_mean_of(60'000, {.loss_bound_ppm = 100'000}));
  ASSERT_TRUE(group.run(kRanks));
  expect_good_ends(group, kRanks, 1);
  std::uint64_t missing = 0;
  for (std::uint16_t rank = kWorkers; rank < kRanks; ++rank) {
    missing += group.endings(rank).front().report.total().missing;
  }
  EXPECT_GT(missing, 0U);  // or this test shows nothing
  for (const std::vector<float>& output : tensors.output) {
    ASSERT_EQ(output, tensors.output[0]);
  }
  EXPECT_LT(codec::nmse(tensors.output[0], tensors.mean_of(0, kWorkers)), 0.2);
}

TEST(Servers, AServerWithoutAShardHasNothingToDo) {
  SimulatedGroup group({.ranks = 6, .servers = 4});
  Tensors tensors(2, 1, 1);
  submit_everywhere(group, tensors, tolerant_mean_of(1, {.precision = 32, .gather_precision = 32}));
  ASSERT_TRUE(group.run(6));
  expect_good_ends(group, 6, 1);
  EXPECT_NEAR(tensors.output[0][0], tensors.mean_of(0, 2)[0], 1e-4);
}

TEST(Servers, EverythingElseWorksAmongTheWorkers) {
  constexpr std::uint16_t kWorkers = 3;
  SimulatedGroup group({.ranks = kWorkers + 2, .servers = 2});
  Tensors tensors(kWorkers, 500, 4);
  Operation broadcast = sum_of(500);
  broadcast.kind = Kind::kBroadcast;
  broadcast.root = 1;
  Operation barrier;
  barrier.kind = Kind::kBarrier;
  submit_everywhere(group, tensors, broadcast);
  submit_everywhere(group, tensors, barrier);
  ASSERT_TRUE(group.run(kWorkers * 2));
  expect_good_ends(group, kWorkers, 2);
  EXPECT_EQ(tensors.output[2], tensors.input[1]);
  // The servers' operation numbers have advanced with the workers'.
  submit_everywhere(group, tensors, sum_of(500));
  ASSERT_TRUE(group.run(kWorkers * 3 + 2));
  EXPECT_EQ(tensors.output[2], tensors.sum());
  broadcast.root = kWorkers;
  EXPECT_FALSE(group.submit(0, tensors.at(0, broadcast)).ok());
  EXPECT_FALSE(group.submit(kWorkers, tensors.at(0, broadcast)).ok());
}

// A sequence of steps; a worker starts each when it has the one before. One output per step.
class Training {
 public:
  Training(SimulatedGroup& group, std::uint16_t workers, std::size_t count, const Operation& step,
           std::uint64_t steps)
      : group_(group), tensors_(workers, count, 1), operation_(step), next_(workers) {
    outputs_.resize(steps, std::vector<std::vector<float>>(workers, std::vector<float>(count)));
    times_.resize(workers);
    group_.on_ending([this](std::uint16_t rank, const Ending& ending) {
      if (rank < next_.size()) {
        on_step(rank, ending);
      }
    });
  }

  void start(std::uint16_t worker) { submit(worker); }
  Tensors& tensors() { return tensors_; }
  const std::vector<std::vector<float>>& outputs(std::size_t step) const { return outputs_[step]; }
  const std::vector<double>& times(std::uint16_t worker) const { return times_[worker]; }

 private:
  void submit(std::uint16_t worker) {
    ASSERT_TRUE(group_
                    .submit(worker, on_buffers(operation_, tensors_.input[worker].data(),
                                               outputs_[next_[worker]][worker].data()))
                    .ok());
  }
  void on_step(std::uint16_t worker, const Ending& ending) {
    ASSERT_TRUE(ending.status.ok()) << ending.status.message();
    times_[worker].push_back(
        static_cast<double>((ending.report.finished - ending.report.queued).count()));
    if (++next_[worker] < outputs_.size()) {
      submit(worker);
    }
  }

  SimulatedGroup& group_;
  Tensors tensors_;
  Operation operation_;
  std::vector<std::size_t> next_;  // next step, by worker
  std::vector<std::vector<std::vector<float>>> outputs_;
  std::vector<std::vector<double>> times_;
};

std::uint64_t times_late(const SimulatedGroup& group, std::uint16_t server, std::uint16_t worker) {
  std::uint64_t times = 0;
  for (const Ending& ending : group.endings(server)) {
    times += ending.report.peers[worker].late ? 1 : 0;
  }
  return times;
}

TEST(Servers, ALateWorkerIsLeftBehindNamedAndCatchesUp) {
  constexpr std::uint16_t kWorkers = 6;
  constexpr std::uint16_t kServers = 2;
  constexpr std::uint16_t kLate = 3;
  constexpr std::uint64_t kSteps = 60;
  SimulatedGroup group(
      {.ranks = kWorkers + kServers, .servers = kServers, .rate = base::gigabits_per_second(1)});
  add_fault(group, kLate, scenario::FaultKind::kDown, 1.0, base::Instant(base::milliseconds(100)),
            base::Instant(base::milliseconds(250)));
  Training training(group, kWorkers, 100'000,
                    tolerant_mean_of(100'000, {.least_contributors = 0.75}), kSteps);
  for (std::uint16_t worker = 0; worker < kWorkers; ++worker) {
    training.start(worker);
  }
  ASSERT_TRUE(group.run((kWorkers + kServers) * kSteps, base::seconds(20)));
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    for (std::uint16_t worker = 1; worker < kWorkers; ++worker) {
      ASSERT_EQ(training.outputs(step)[worker], training.outputs(step)[0]) << "step " << step;
    }
  }
  for (std::uint16_t server = kWorkers; server < kWorkers + kServers; ++server) {
    EXPECT_GT(times_late(group, server, kLate), 0U);
    for (std::uint16_t worker = 0; worker < kWorkers; ++worker) {
      // While it catches up, the network differs from what the others have learned.
      EXPECT_TRUE(worker == kLate ||
                  times_late(group, server, worker) < times_late(group, server, kLate))
          << "worker " << worker;
    }
  }
  // No other worker waited for the whole time that it was gone.
  const std::vector<double>& others = training.times(0);
  EXPECT_LT(*std::max_element(others.begin(), others.end()), 100e6);
  const std::vector<double>& its_own = training.times(kLate);
  EXPECT_GT(*std::max_element(its_own.begin(), its_own.end()), 100e6);
}

TEST(Servers, WhoDoesNotComeWithinAStepIsNotPartOfItsMean) {
  constexpr std::uint16_t kWorkers = 4;
  constexpr std::uint64_t kSteps = 20;
  SimulatedGroup group({.ranks = kWorkers + 1, .servers = 1});
  Training training(
      group, kWorkers, 4096,
      tolerant_mean_of(4096, {.precision = 32, .gather_precision = 32, .least_contributors = 0.5}),
      kSteps);
  // The last worker finishes these steps and then stops calling for a while.
  Tensors& tensors = training.tensors();
  for (std::uint16_t worker = 0; worker < kWorkers; ++worker) {
    training.start(worker);
  }
  ASSERT_TRUE(group.run((kWorkers + 1) * kSteps));
  // The network is calm and the workers alike: all contribute.
  EXPECT_LT(codec::nmse(training.outputs(kSteps - 1)[0], tensors.mean_of(0, kWorkers)), 1e-6);
  Tensors next(kWorkers, 4096, 9);
  const Operation operation =
      tolerant_mean_of(4096, {.precision = 32, .gather_precision = 32, .least_contributors = 0.5});
  group.on_ending({});
  for (std::uint16_t worker = 0; worker + 1 < kWorkers; ++worker) {
    ASSERT_TRUE(group.submit(worker, next.at(worker, operation)).ok());
  }
  ASSERT_TRUE(group.run((kWorkers + 1) * kSteps + kWorkers, base::seconds(5)));
  EXPECT_LT(codec::nmse(next.output[0], next.mean_of(0, kWorkers - 1)), 1e-6);
  const collective::OperationReport& report = group.endings(kWorkers).back().report;
  EXPECT_EQ(report.contributors, kWorkers - 1);
  EXPECT_TRUE(report.peers[kWorkers - 1].late);
  // It calls at last and gets the sum.
  ASSERT_TRUE(group.submit(kWorkers - 1, next.at(kWorkers - 1, operation)).ok());
  ASSERT_TRUE(group.run((kWorkers + 1) * kSteps + kWorkers + 1, base::seconds(5)));
  EXPECT_EQ(next.output[kWorkers - 1], next.output[0]);
}

// Errors of single steps are independent, so what remains of many is bias.
TEST(Servers, TheMeanIsUnbiasedUnderLoss) {
  constexpr std::uint16_t kWorkers = 4;
  constexpr std::size_t kCount = 4096;
  constexpr int kSteps = 400 / kLess;
  SimulatedGroup group({.ranks = kWorkers + 1, .servers = 1, .seed = 11, .cut_share = 0.5});
  add_fault(group, 0, scenario::FaultKind::kLoss, 0.3);
  Tensors tensors(kWorkers, kCount, 5);
  const Operation operation =
      tolerant_mean_of(kCount, {.gather_precision = 32, .loss_bound_ppm = 400'000});
  std::vector<float> average(kCount);
  for (int step = 0; step < kSteps; ++step) {
    submit_everywhere(group, tensors, operation);
    ASSERT_TRUE(group.run(static_cast<std::size_t>(step + 1) * (kWorkers + 1)));
    for (std::size_t i = 0; i < kCount; ++i) {
      average[i] += tensors.output[0][i] / kSteps;
    }
  }
  EXPECT_LT(std::sqrt(codec::nmse(average, tensors.mean_of(0, kWorkers))), kLess > 1 ? 0.1 : 0.03);
}

TEST(Servers, ADeadServerEndsEverythingWithItsName) {
  for (const bool is_tolerant : {false, true}) {
    constexpr std::uint16_t kWorkers = 3;
    SimulatedGroup group(
        {.ranks = kWorkers + 2, .servers = 2, .rate = base::gigabits_per_second(1)});
    scenario::Fault death;
    death.kind = scenario::FaultKind::kHostDeath;
    death.host = kWorkers + 1;
    death.from = base::Instant(base::milliseconds(2));
    ASSERT_TRUE(group.network().add_fault(death).ok());
    Tensors tensors(kWorkers, 500'000, 1);
    submit_everywhere(group, tensors, is_tolerant ? tolerant_mean_of(500'000) : sum_of(500'000));
    pass(group, base::seconds(10));
    for (std::uint16_t rank = 0; rank < kWorkers; ++rank) {
      ASSERT_EQ(group.endings(rank).size(), 1U);
      const Ending& ending = group.endings(rank).front();
      EXPECT_NE(ending.status.message().find("parameter server 1 (rank 4) is dead"),
                std::string::npos)
          << ending.status.message();
      EXPECT_LT(ending.report.finished - death.from, base::seconds(2));
    }
    // The other server may have done its part before.
    EXPECT_TRUE(group.stack(kWorkers).engine().has_failed());
  }
}

TEST(Servers, ADeadWorkerIsNoticedEvenWhileNothingIsCalled) {
  constexpr std::uint16_t kWorkers = 3;
  SimulatedGroup group({.ranks = kWorkers + 1, .servers = 1});
  scenario::Fault death;
  death.kind = scenario::FaultKind::kHostDeath;
  death.host = 1;
  death.from = base::Instant(base::milliseconds(50));
  ASSERT_TRUE(group.network().add_fault(death).ok());
  Tensors tensors(kWorkers, 100, 1);
  submit_everywhere(group, tensors, sum_of(100));
  ASSERT_TRUE(group.run(kWorkers + 1));
  pass(group, base::seconds(3));
  const auto& failure = group.stack(kWorkers).engine().failure();
  ASSERT_TRUE(failure.has_value());
  EXPECT_NE(failure->message().find("rank 1 is dead"), std::string::npos) << failure->message();
}

TEST(Servers, WorkersThatDoNotAgreeAreNamed) {
  Operation other_kind = sum_of(1000);
  other_kind.kind = Kind::kBroadcast;
  Operation other_tolerance = tolerant_mean_of(1000);
  other_tolerance.op = ReduceOp::kSum;
  for (const Operation& odd : {sum_of(2000), other_kind, other_tolerance}) {
    constexpr std::uint16_t kWorkers = 4;
    SimulatedGroup group({.ranks = kWorkers + 1, .servers = 1});
    Tensors tensors(kWorkers, 2000, 1);
    for (std::uint16_t worker = 0; worker < kWorkers; ++worker) {
      group.submit_at(base::Instant(base::microseconds(worker == 2 ? 500 : 0)), worker,
                      tensors.at(worker, worker == 2 ? odd : sum_of(1000)));
    }
    ASSERT_TRUE(group.run(kWorkers + 1, base::seconds(5))) << describe(odd);
    for (std::uint16_t rank = 0; rank < kWorkers; ++rank) {
      const base::Status& status = group.endings(rank).front().status;
      EXPECT_EQ(status.code(), base::StatusCode::kMismatch);
      EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
    }
    const auto& failure = group.stack(kWorkers).engine().failure();
    ASSERT_TRUE(failure.has_value());
    EXPECT_NE(failure->message().find("at rank 2 it is"), std::string::npos) << failure->message();
  }
}

TEST(Servers, EndWhenAllWorkersHaveLeft) {
  constexpr std::uint16_t kWorkers = 3;
  SimulatedGroup group({.ranks = kWorkers + 2, .servers = 2});
  Tensors tensors(kWorkers, 1000, 1);
  submit_everywhere(group, tensors, sum_of(1000));
  ASSERT_TRUE(group.run(kWorkers + 2));
  for (std::uint16_t worker = 0; worker < kWorkers; ++worker) {
    EXPECT_FALSE(group.stack(kWorkers).engine().is_service_over());
    group.leave(worker);
    pass(group, base::seconds(3));  // longer than the timeout for silent peers
  }
  for (std::uint16_t server = kWorkers; server < kWorkers + 2; ++server) {
    EXPECT_TRUE(group.stack(server).engine().is_service_over());
    EXPECT_FALSE(group.stack(server).engine().has_failed());
  }
}

// Runs one job: workers, servers, operations, priorities and times are drawn from the seed.
void run_schedule(std::uint64_t seed) {
  base::RandomSequence random(seed);
  const auto workers = static_cast<std::uint16_t>(1 + random.next_below(5));
  const auto servers = static_cast<std::uint16_t>(1 + random.next_below(3));
  const auto ranks = static_cast<std::uint16_t>(workers + servers);
  SimulatedGroup group({.ranks = ranks,
                        .servers = servers,
                        .seed = seed,
                        .plan = {.piece_bytes = 4096, .window = 2, .message_bytes = 8192}});
  for (std::uint16_t rank = 0; rank < ranks && random.next_below(2) == 0; ++rank) {
    add_fault(group, rank, scenario::FaultKind::kLoss, 0.03);
  }
  std::vector<Operation> operations;
  std::vector<Tensors> tensors;
  std::size_t served = 0;
  for (std::uint64_t i = 0, count = 1 + random.next_below(40); i < count; ++i) {
    Operation operation =
        sum_of(random.next_below(4) == 0 ? random.next_below(4) : random.next_below(6'000));
    const std::uint64_t kind = random.next_below(8);
    if (kind == 0) {
      operation.kind = Kind::kBroadcast;
    } else if (kind < 3) {
      operation = tolerant_mean_of(operation.count);
    }
    served += operation.kind == Kind::kAllReduce ? 1 : 0;
    operations.push_back(operation);
    tensors.emplace_back(workers, operation.count, seed + i);
  }
  for (std::uint16_t worker = 0; worker < workers; ++worker) {
    base::Instant when;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      when = when + base::microseconds(static_cast<std::int64_t>(random.next_below(200)));
      operations[i].priority = static_cast<std::uint8_t>(random.next_below(8));
      group.submit_at(when, worker, tensors[i].at(worker, operations[i]));
    }
  }
  ASSERT_TRUE(group.run(workers * operations.size() + servers * served)) << "seed " << seed;
  expect_good_ends(group, workers, operations.size());
  for (std::size_t i = 0; i < operations.size(); ++i) {
    for (std::uint16_t worker = 0; worker < workers; ++worker) {
      if (operations[i].kind == Kind::kBroadcast) {
        ASSERT_EQ(tensors[i].output[worker], tensors[i].input[0]) << "seed " << seed;
      } else if (!operations[i].tolerance) {
        ASSERT_EQ(tensors[i].output[worker], tensors[i].sum()) << "seed " << seed;
      } else {
        ASSERT_EQ(tensors[i].output[worker], tensors[i].output[0]) << "seed " << seed;
      }
    }
  }
}

TEST(Servers, AHundredRandomSchedulesEndAndAreExact) {
  for (std::uint64_t seed = 1; seed <= 100 / kLess; ++seed) {
    run_schedule(seed);
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

TEST(Servers, MemoryDoesNotGrowWithOperations) {
  constexpr std::uint16_t kWorkers = 2;
  SimulatedGroup group({.ranks = kWorkers + 1, .servers = 1});
  Tensors tensors(kWorkers, 300, 1);
  constexpr std::size_t kOperations = 10'000;  // the first half fills the tables
  const auto memory = [&] {
    return group.stack(kWorkers).endpoint().memory_bytes() +
           group.stack(kWorkers).engine().memory_bytes();
  };
  std::size_t after_warm_up = 0;
  for (std::size_t i = 1; i <= kOperations; ++i) {
    submit_everywhere(group, tensors, sum_of(300));
    ASSERT_TRUE(group.run(i * (kWorkers + 1)));
    after_warm_up = i == kOperations / 2 ? memory() : after_warm_up;
  }
  EXPECT_LE(memory(), after_warm_up);
}

}  // namespace
}  // namespace spillway::sim
