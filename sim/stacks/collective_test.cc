// SPDX-License-Identifier: Apache-2.0
//
// The real collectives in the simulated network: real packets, with losses, trims, duplicates and
// dead hosts.
#include <gtest/gtest.h>

#include <string>

#include "base/random.h"
#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

using collective::Algorithm;
using collective::DataType;
using collective::Kind;
using collective::Operation;
using collective::ReduceOp;

// Sanitizers slow everything down by about ten times.
#ifdef SPILLWAY_SANITIZED
constexpr unsigned kCollectiveLess = 8;
#else
constexpr unsigned kCollectiveLess = 1;
#endif

// Integers, so that sums do not depend on their order.
struct Buffers {
  std::vector<std::int32_t> input;
  std::vector<std::int32_t> output;
};

std::int32_t value_of(std::uint16_t rank, std::size_t index, std::uint64_t operation) {
  return static_cast<std::int32_t>(
      base::random_block(operation, {rank, static_cast<std::uint32_t>(index), 0, 0})[0] >> 12);
}

std::vector<Buffers> make_buffers(const Operation& operation, std::uint16_t ranks,
                                  std::uint64_t salt) {
  std::vector<Buffers> buffers(ranks);
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    buffers[rank].input.resize(input_bytes(operation, {rank, ranks}) / 4);
    buffers[rank].output.resize(output_bytes(operation, {rank, ranks}) / 4);
    for (std::size_t i = 0; i < buffers[rank].input.size(); ++i) {
      buffers[rank].input[i] = value_of(rank, i, salt);
    }
  }
  return buffers;
}

Operation on(Buffers& buffers, const Operation& operation) {
  return on_buffers(operation, buffers.input.data(), buffers.output.data());
}

std::vector<std::int32_t> sum_of(const std::vector<Buffers>& buffers, std::size_t first,
                                 std::size_t count) {
  std::vector<std::int32_t> sum(count);
  for (const Buffers& rank : buffers) {
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] += rank.input[first + i];
    }
  }
  return sum;
}

// The expected output at `rank`; for reductions, all_gather and broadcast.
std::vector<std::int32_t> expected(const Operation& operation, const std::vector<Buffers>& buffers,
                                   std::uint16_t rank) {
  std::vector<std::int32_t> all;
  switch (operation.kind) {
    case Kind::kReduceScatter:
      return sum_of(buffers, rank * operation.count, operation.count);
    case Kind::kBroadcast:
      return buffers[operation.root].input;
    case Kind::kAllGather:
      for (const Buffers& other : buffers) {
        all.insert(all.end(), other.input.begin(), other.input.end());
      }
      return all;
    case Kind::kAllToAll:
      for (const Buffers& other : buffers) {
        const auto first =
            other.input.begin() + static_cast<std::ptrdiff_t>(rank * operation.count);
        all.insert(all.end(), first, first + static_cast<std::ptrdiff_t>(operation.count));
      }
      return all;
    case Kind::kReduce:
      return rank == operation.root ? sum_of(buffers, 0, operation.count) : all;
    default:
      return sum_of(buffers, 0, operation.count);
  }
}

Operation operation_of(Kind kind, Algorithm algorithm, std::size_t count) {
  Operation operation;
  operation.kind = kind;
  operation.algorithm = algorithm;
  operation.type = DataType::kInt32;
  operation.count = count;
  return operation;
}

void add_loss(SimulatedGroup& group, std::uint16_t ranks, scenario::FaultKind kind, double share) {
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    for (const std::string& link :
         {"host" + std::to_string(rank) + "->switch0", "switch0->host" + std::to_string(rank)}) {
      scenario::Fault fault;
      fault.kind = kind;
      fault.link = link;
      fault.share = share;
      fault.delay = base::microseconds(200);
      ASSERT_TRUE(group.network().add_fault(fault).ok()) << link;
    }
  }
}

void expect_exact(const Operation& operation, std::uint16_t ranks, SimulatedGroup& group) {
  std::vector<Buffers> buffers = make_buffers(operation, ranks, 5);
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    ASSERT_TRUE(group.submit(rank, on(buffers[rank], operation)).ok());
  }
  ASSERT_TRUE(group.run(ranks)) << describe(operation) << " of " << ranks << " ranks hangs";
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    const Ending& ending = group.endings(rank).back();
    ASSERT_TRUE(ending.status.ok()) << ending.status.message();
    ASSERT_EQ(buffers[rank].output, expected(operation, buffers, rank)) << "rank " << rank;
    EXPECT_EQ(ending.report.total().missing, 0U);
  }
}

struct CollectiveCase {
  Kind kind;
  Algorithm algorithm;
};
std::string case_name(const testing::TestParamInfo<CollectiveCase>& info) {
  return std::string(kind_name(info.param.kind)) + "_" + algorithm_name(info.param.algorithm);
}
class EveryCollective : public testing::TestWithParam<CollectiveCase> {};
INSTANTIATE_TEST_SUITE_P(Algorithms, EveryCollective,
                         testing::Values(CollectiveCase{Kind::kAllReduce, Algorithm::kDirect},
                                         CollectiveCase{Kind::kAllReduce, Algorithm::kRing},
                                         CollectiveCase{Kind::kAllReduce, Algorithm::kTree},
                                         CollectiveCase{Kind::kReduceScatter, Algorithm::kDirect},
                                         CollectiveCase{Kind::kReduceScatter, Algorithm::kRing},
                                         CollectiveCase{Kind::kAllGather, Algorithm::kDirect},
                                         CollectiveCase{Kind::kAllGather, Algorithm::kRing},
                                         CollectiveCase{Kind::kBroadcast, Algorithm::kTree},
                                         CollectiveCase{Kind::kBroadcast, Algorithm::kRing},
                                         CollectiveCase{Kind::kReduce, Algorithm::kDirect},
                                         CollectiveCase{Kind::kReduce, Algorithm::kTree},
                                         CollectiveCase{Kind::kAllToAll, Algorithm::kDirect}),
                         case_name);

TEST_P(EveryCollective, IsExactOnACleanNetwork) {
  SimulatedGroup group({.ranks = 5});
  expect_exact(operation_of(GetParam().kind, GetParam().algorithm, 100'000), 5, group);
}

TEST_P(EveryCollective, IsExactThroughLossRepeatsReorderingAndDamage) {
  SimulatedGroup group({.ranks = 4, .seed = 3});
  add_loss(group, 4, scenario::FaultKind::kLoss, 0.02);
  add_loss(group, 4, scenario::FaultKind::kDuplicate, 0.02);
  add_loss(group, 4, scenario::FaultKind::kReorder, 0.02);
  add_loss(group, 4, scenario::FaultKind::kCorrupt, 0.01);
  expect_exact(operation_of(GetParam().kind, GetParam().algorithm, 50'000), 4, group);
}

TEST_P(EveryCollective, IsExactWith256RanksAndLoss) {
  constexpr std::uint16_t kRanks = 256 / kCollectiveLess;
  SimulatedGroup group({.ranks = kRanks, .seed = 9});
  add_loss(group, kRanks, scenario::FaultKind::kLoss, 0.002);
  const bool per_rank = GetParam().kind == Kind::kAllGather ||
                        GetParam().kind == Kind::kReduceScatter ||
                        GetParam().kind == Kind::kAllToAll;
  expect_exact(operation_of(GetParam().kind, GetParam().algorithm, per_rank ? 40 : 5'000), kRanks,
               group);
}

TEST(Collective, FloatSumsHaveTheSameBitsAtAllRanksWhateverArrivesWhen) {
  std::vector<std::vector<float>> first;
  for (const std::uint64_t seed : {1, 2, 3}) {
    SimulatedGroup group({.ranks = 5, .seed = seed});
    add_loss(group, 5, scenario::FaultKind::kReorder, 0.3);
    Operation operation;
    operation.count = 20'000;
    operation.op = ReduceOp::kAverage;
    std::vector<std::vector<float>> input(5, std::vector<float>(operation.count));
    std::vector<std::vector<float>> output = input;
    base::RandomSequence random(77);
    for (std::uint16_t rank = 0; rank < 5; ++rank) {
      for (float& value : input[rank]) {
        value = static_cast<float>(random.next_gaussian() * 1e3);
      }
      ASSERT_TRUE(
          group.submit(rank, on_buffers(operation, input[rank].data(), output[rank].data())).ok());
    }
    ASSERT_TRUE(group.run(5));
    for (std::uint16_t rank = 1; rank < 5; ++rank) {
      ASSERT_EQ(output[rank], output[0]);
    }
    first.push_back(output[0]);
  }
  EXPECT_EQ(first[0], first[1]);
  EXPECT_EQ(first[0], first[2]);
}

// A lower bound: every link carries 2 (n - 1) / n of the tensor each way, in full Ethernet frames.
base::Duration links_bound(std::uint16_t ranks, std::size_t bytes, base::BitRate rate) {
  constexpr std::size_t kFrame = 1538;
  constexpr std::size_t kPayload = 1472;
  const std::size_t per_link = bytes / ranks * 2 * (ranks - 1U);
  return base::transmission_time(
      base::bytes(static_cast<std::int64_t>(per_link * kFrame / kPayload)), rate);
}

TEST(Collective, AllReducesOnACleanNetworkStayNearTheLinksBound) {
  const base::BitRate rate = base::gigabits_per_second(1);
  const Operation operation = operation_of(Kind::kAllReduce, Algorithm::kAutomatic, 1 << 20);
  for (const std::uint16_t ranks : {std::uint16_t{4}, std::uint16_t{8}}) {
    SimulatedGroup group({.ranks = ranks, .rate = rate, .plan = {}});
    std::vector<Buffers> buffers = make_buffers(operation, ranks, 1);
    for (std::uint16_t rank = 0; rank < ranks; ++rank) {
      ASSERT_TRUE(group.submit(rank, on(buffers[rank], operation)).ok());
    }
    ASSERT_TRUE(group.run(ranks));
    const auto took = static_cast<double>((group.network().now() - base::Instant()).count());
    const auto bound = static_cast<double>(links_bound(ranks, operation.bytes(), rate).count());
    EXPECT_LT(took / bound, 1.08) << ranks << " ranks";
  }
}

TEST(Collective, UrgentBucketsOvertakeOthersOfTheSameSize) {
  constexpr std::uint16_t kRanks = 4;
  constexpr unsigned kBuckets = 64;
  SimulatedGroup group({.ranks = kRanks, .rate = base::gigabits_per_second(1)});
  Operation operation = operation_of(Kind::kAllReduce, Algorithm::kDirect, 30'000);
  std::vector<std::vector<Buffers>> buffers;
  for (unsigned bucket = 0; bucket < kBuckets; ++bucket) {
    buffers.push_back(make_buffers(operation, kRanks, bucket));
  }
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    for (unsigned bucket = 0; bucket < kBuckets; ++bucket) {
      // As in a backward pass: the buckets needed first are ready last.
      operation.priority = static_cast<std::uint8_t>(bucket * 8 / kBuckets);
      ASSERT_TRUE(group.submit(rank, on(buffers[bucket][rank], operation), bucket).ok());
    }
  }
  ASSERT_TRUE(group.run(kRanks * kBuckets));
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    double urgent = 0;
    double patient = 0;
    for (const Ending& ending : group.endings(rank)) {
      const auto took = static_cast<double>((ending.report.finished - base::Instant()).count());
      (ending.token < kBuckets / 2 ? patient : urgent) += took;
    }
    EXPECT_LT(urgent, 0.7 * patient) << "rank " << rank;
  }
}

// The operations of a random schedule, the same at every rank.
struct Schedule {
  std::uint16_t ranks;
  std::vector<Operation> operations;
};

Schedule random_schedule(base::RandomSequence& random) {
  constexpr std::array kinds = {Kind::kAllReduce, Kind::kReduceScatter, Kind::kAllGather,
                                Kind::kBroadcast, Kind::kReduce,        Kind::kAllToAll,
                                Kind::kBarrier};
  Schedule schedule;
  schedule.ranks = static_cast<std::uint16_t>(2 + random.next_below(6));
  const std::uint64_t count = 1 + random.next_below(12);
  for (std::uint64_t i = 0; i < count; ++i) {
    Operation operation;
    operation.kind = kinds[random.next_below(kinds.size())];
    // Only algorithms that take every type: kSwitch, the last one, does not.
    operation.algorithm = static_cast<Algorithm>(random.next_below(collective::kAlgorithms - 1));
    operation.type = DataType::kInt32;
    operation.count = random.next_below(4) == 0 ? random.next_below(8) : random.next_below(6'000);
    operation.root = static_cast<std::uint16_t>(random.next_below(schedule.ranks));
    operation.priority = static_cast<std::uint8_t>(random.next_below(8));
    schedule.operations.push_back(operation);
  }
  return schedule;
}

void run_collective_schedule(std::uint64_t seed) {
  base::RandomSequence random(seed);
  const Schedule schedule = random_schedule(random);
  SimulatedGroup group({.ranks = schedule.ranks,
                        .seed = seed,
                        .plan = {.piece_bytes = 4096, .window = 2, .message_bytes = 8192}});
  if (random.next_below(2) == 0) {
    add_loss(group, schedule.ranks, scenario::FaultKind::kLoss, 0.03);
  }
  std::vector<std::vector<Buffers>> buffers;
  for (std::size_t i = 0; i < schedule.operations.size(); ++i) {
    buffers.push_back(make_buffers(schedule.operations[i], schedule.ranks, seed + i));
  }
  for (std::uint16_t rank = 0; rank < schedule.ranks; ++rank) {
    base::Instant when;
    for (std::size_t i = 0; i < schedule.operations.size(); ++i) {
      when = when + base::microseconds(static_cast<std::int64_t>(random.next_below(300)));
      group.submit_at(when, rank, on(buffers[i][rank], schedule.operations[i]), i);
    }
  }
  ASSERT_TRUE(group.run(schedule.ranks * schedule.operations.size())) << "seed " << seed;
  for (std::uint16_t rank = 0; rank < schedule.ranks; ++rank) {
    for (const Ending& ending : group.endings(rank)) {
      ASSERT_TRUE(ending.status.ok()) << ending.status.message() << " seed " << seed;
      const Operation& operation = schedule.operations[ending.token];
      if (operation.kind != Kind::kBarrier) {
        ASSERT_EQ(buffers[ending.token][rank].output,
                  expected(operation, buffers[ending.token], rank))
            << describe(operation) << " at rank " << rank << ", seed " << seed;
      }
    }
  }
}

TEST(Collective, AThousandRandomSchedulesEndAndAreExact) {
  for (std::uint64_t seed = 1; seed <= 1000 / kCollectiveLess; ++seed) {
    run_collective_schedule(seed);
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

TEST(Collective, ADeadRankEndsEverythingWithItsName) {
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing, Algorithm::kTree}) {
    constexpr std::uint16_t kRanks = 6;
    constexpr std::uint16_t kVictim = 3;
    SimulatedGroup group({.ranks = kRanks, .rate = base::gigabits_per_second(1)});
    scenario::Fault death;
    death.kind = scenario::FaultKind::kHostDeath;
    death.host = kVictim;
    death.from = base::Instant(base::milliseconds(5));
    ASSERT_TRUE(group.network().add_fault(death).ok());
    const Operation operation = operation_of(Kind::kAllReduce, algorithm, 1'000'000);
    std::vector<Buffers> buffers = make_buffers(operation, kRanks, 1);
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(group.submit(rank, on(buffers[rank], operation)).ok());
    }
    ASSERT_TRUE(group.run(kRanks - 1, base::seconds(10)));
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      if (rank == kVictim) {
        continue;
      }
      ASSERT_EQ(group.endings(rank).size(), 1U);
      const Ending& ending = group.endings(rank).front();
      EXPECT_NE(ending.status.message().find("rank 3 is dead"), std::string::npos)
          << ending.status.message();
      EXPECT_LT(ending.report.finished - death.from, base::seconds(2));
    }
  }
}

TEST(Collective, RanksThatDoNotAgreeAreToldWhoAndWhat) {
  constexpr std::uint16_t kRanks = 4;
  Operation usual = operation_of(Kind::kAllReduce, Algorithm::kAutomatic, 1000);
  Operation other_size = usual;
  other_size.count = 2000;
  Operation other_type = usual;
  other_type.type = DataType::kFloat32;
  Operation other_kind = usual;
  other_kind.kind = Kind::kReduceScatter;
  for (const Operation& odd : {other_size, other_type, other_kind}) {
    SimulatedGroup group({.ranks = kRanks});
    std::vector<std::vector<std::int32_t>> memory(kRanks, std::vector<std::int32_t>(16'000));
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      std::int32_t* words = memory[rank].data();
      ASSERT_TRUE(
          group.submit(rank, on_buffers(rank == 2 ? odd : usual, words, words + 8'000)).ok());
    }
    ASSERT_TRUE(group.run(kRanks, base::seconds(5))) << describe(odd);
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      const base::Status& status = group.endings(rank).front().status;
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
    }
  }
}

TEST(Collective, AnAbortReachesEveryRank) {
  constexpr std::uint16_t kRanks = 5;
  SimulatedGroup group({.ranks = kRanks, .rate = base::gigabits_per_second(1)});
  const Operation operation = operation_of(Kind::kAllReduce, Algorithm::kRing, 1'000'000);
  std::vector<Buffers> buffers = make_buffers(operation, kRanks, 1);
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(group.submit(rank, on(buffers[rank], operation)).ok());
  }
  group.network().at(base::Instant(base::milliseconds(3)), [&](base::Instant now) {
    group.stack(1).fail({base::StatusCode::kUnavailable, "aborted: out of patience"}, now);
    group.network().wake(1);
  });
  ASSERT_TRUE(group.run(kRanks, base::seconds(5)));
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    const Ending& ending = group.endings(rank).front();
    EXPECT_NE(ending.status.message().find(rank == 1 ? "out of patience" : "rank 1 aborted"),
              std::string::npos)
        << ending.status.message();
    EXPECT_LT(ending.report.finished, base::Instant(base::milliseconds(200)));
  }
}

TEST(Collective, ARankThatIsDoneMayCloseBeforeOthersHaveBegun) {
  constexpr std::uint16_t kRanks = 3;
  SimulatedGroup group({.ranks = kRanks});
  Operation operation = operation_of(Kind::kReduce, Algorithm::kDirect, 100);
  operation.root = 2;
  std::vector<Buffers> buffers = make_buffers(operation, kRanks, 1);
  group.on_ending([&](std::uint16_t rank, const Ending&) {
    if (rank == 0) {
      group.stack(0).leave();
    }
  });
  ASSERT_TRUE(group.submit(0, on(buffers[0], operation)).ok());
  ASSERT_TRUE(group.submit(2, on(buffers[2], operation)).ok());
  group.submit_at(base::Instant(base::milliseconds(50)), 1, on(buffers[1], operation));
  ASSERT_TRUE(group.run(kRanks));
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(group.endings(rank).front().status.ok())
        << rank << ": " << group.endings(rank).front().status.message();
  }
  for (std::size_t i = 0; i < operation.count; ++i) {
    ASSERT_EQ(buffers[2].output[i],
              buffers[0].input[i] + buffers[1].input[i] + buffers[2].input[i]);
  }
}

TEST(Collective, WhoeverStillNeedsARankThatHasClosedIsTold) {
  SimulatedGroup group({.ranks = 2});
  const Operation operation = operation_of(Kind::kAllReduce, Algorithm::kDirect, 100);
  std::vector<Buffers> buffers = make_buffers(operation, 2, 1);
  group.stack(0).leave();
  group.network().wake(0);
  group.submit_at(base::Instant(base::milliseconds(50)), 1, on(buffers[1], operation));
  ASSERT_TRUE(group.run(1));
  const base::Status& status = group.endings(1).front().status;
  EXPECT_EQ(status.code(), base::StatusCode::kPeerFailed);
  EXPECT_NE(status.message().find("rank 0 closed its communicator"), std::string::npos)
      << status.message();
}

TEST(Collective, SendsMeetReceivesInTheirOrder) {
  SimulatedGroup group({.ranks = 3});
  std::vector<std::int32_t> sent(3000);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<std::int32_t>(i);
  }
  std::vector<std::int32_t> received(sent.size());
  const auto part = [&](std::vector<std::int32_t>& memory, std::size_t index) {
    return memory.data() + index * 1000;
  };
  for (std::size_t i = 0; i < 3; ++i) {
    Operation operation = operation_of(Kind::kReceive, Algorithm::kAutomatic, 1000);
    operation.root = 2;
    ASSERT_TRUE(group.submit(0, on_buffers(operation, nullptr, part(received, i))).ok());
  }
  for (std::size_t i = 0; i < 3; ++i) {
    Operation operation = operation_of(Kind::kSend, Algorithm::kAutomatic, 1000);
    operation.root = 0;
    ASSERT_TRUE(group.submit(2, on_buffers(operation, part(sent, i), nullptr)).ok());
  }
  ASSERT_TRUE(group.run(6));
  EXPECT_EQ(received, sent);
}

TEST(Collective, MemoryDoesNotGrowWithOperations) {
  constexpr std::uint16_t kRanks = 3;
  SimulatedGroup group({.ranks = kRanks});
  const Operation operation = operation_of(Kind::kAllReduce, Algorithm::kDirect, 300);
  std::vector<Buffers> buffers = make_buffers(operation, kRanks, 1);
  std::size_t after_warm_up = 0;
  constexpr std::size_t kOperations = 20'000 / kCollectiveLess;
  for (std::size_t i = 1; i <= kOperations; ++i) {
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(group.submit(rank, on(buffers[rank], operation)).ok());
    }
    ASSERT_TRUE(group.run(i * kRanks));
    if (i == kOperations / 2) {
      after_warm_up =
          group.stack(0).endpoint().memory_bytes() + group.stack(0).engine().memory_bytes();
    }
  }
  EXPECT_LE(group.stack(0).endpoint().memory_bytes() + group.stack(0).engine().memory_bytes(),
            after_warm_up);
}

}  // namespace
}  // namespace spillway::sim
