// SPDX-License-Identifier: Apache-2.0
//
// Counters just before they wrap: numbers of packets, control packets and operations at 32 bits,
// microsecond clocks at 32 bits, epochs at 16 bits. A run is a function of its inputs. So a run
// across a wrap must be the same, packet by packet, as one that is far from any wrap.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <string>

#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

using collective::DataType;
using collective::Kind;
using collective::Operation;

constexpr std::uint16_t kEdgeRanks = 3;
constexpr std::uint64_t kTurn = std::uint64_t{1} << 32;  // of the low bits in packets
constexpr std::uint64_t kEpochTurn = std::uint64_t{1} << 16;
constexpr std::size_t kRounds = 2;
constexpr std::size_t kSums = 6;   // of each kind, in a round
constexpr std::size_t kPairs = 8;  // messages from each rank to the next, in a round
constexpr std::size_t kEdgeValues = 6'000;
constexpr base::Duration kPause = base::milliseconds(300);  // between the rounds
constexpr base::Duration kPatience = base::seconds(60);

// Initial values of all counters.
struct Start {
  std::string name;
  std::uint64_t number = 0;
  std::uint64_t operation = 0;
  std::uint64_t epoch = 1;
  std::int64_t clock_us = 1'000;
};

std::string name_of(const testing::TestParamInfo<Start>& info) {
  return info.param.name;
}

using Counts = std::array<std::uint64_t, sizeof(transport::EndpointCounters) / 8>;

// Everything that happened at all ranks.
struct History {
  std::vector<Counts> counts;
  std::int64_t took_ns = 0;
  std::uint64_t packets = 0;

  friend bool operator==(const History&, const History&) = default;
};

enum class What : std::uint8_t { kExact, kEverything };

// One all-reduce of the group, with its tensors.
struct Sum {
  Sum(std::uint64_t seed, bool is_tolerant) : tensors(kEdgeRanks, kEdgeValues, seed) {
    operation = tolerant(kEdgeValues);
    if (!is_tolerant) {
      operation.tolerance.reset();
    }
  }
  double worst_error() const {
    double worst = 0.0;
    for (const std::vector<float>& output : tensors.output) {
      double error = 0.0;
      double size = 0.0;
      for (std::size_t i = 0; i < output.size(); ++i) {
        const double off = output[i] - tensors.mean[i];
        error += off * off;
        size += tensors.mean[i] * tensors.mean[i];
      }
      worst = std::max(worst, error / size);
    }
    return worst;
  }

  Gradients tensors;
  Operation operation;
};

// A message from each rank to the next.
struct Ring {
  explicit Ring(std::int32_t salt) {
    for (std::uint16_t rank = 0; rank < kEdgeRanks; ++rank) {
      for (std::size_t i = 0; i < kEdgeValues; ++i) {
        sent[rank].push_back(salt * 1'000'000 + rank * 100'000 + static_cast<std::int32_t>(i));
      }
      received[rank].resize(kEdgeValues);
    }
  }
  Operation of(Kind kind, std::uint16_t rank, std::uint32_t tag) {
    const bool sends = kind == Kind::kSend;
    Operation operation;
    operation.kind = kind;
    operation.type = DataType::kInt32;
    operation.count = kEdgeValues;
    operation.root = static_cast<std::uint16_t>((rank + (sends ? 1 : kEdgeRanks - 1)) % kEdgeRanks);
    operation.tag = tag;
    return on_buffers(operation, sends ? sent[rank].data() : nullptr,
                      sends ? nullptr : received[rank].data());
  }
  bool has_arrived() const {
    return received[1] == sent[0] && received[2] == sent[1] && received[0] == sent[2];
  }

  std::array<std::vector<std::int32_t>, kEdgeRanks> sent;
  std::array<std::vector<std::int32_t>, kEdgeRanks> received;
};

// Losses, duplicates and reordering on every link.
void add_faults(SimulatedGroup& group, std::uint16_t ranks) {
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    for (const std::string& link : {up_link(rank), down_link(rank)}) {
      add_fault(group, link, scenario::FaultKind::kLoss, 0.02);
      add_fault(group, link, scenario::FaultKind::kDuplicate, 0.02);
      scenario::Fault late{.kind = scenario::FaultKind::kReorder, .link = link, .share = 0.1};
      late.delay = base::microseconds(30);
      ASSERT_TRUE(group.network().add_fault(late).ok());
    }
  }
}

SimulatedGroupOptions options_of(const Start& start) {
  SimulatedGroupOptions options;
  options.ranks = kEdgeRanks;
  options.first_number = start.number;
  options.first_operation = start.operation;
  options.epoch = start.epoch;
  return options;
}

void expect_nothing_strange(SimulatedGroup& group, std::uint16_t ranks) {
  std::uint64_t copies = 0;
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    const transport::EndpointCounters& counters = group.stack(rank).endpoint().counters();
    EXPECT_EQ(counters.foreign_job, 0U);
    EXPECT_EQ(counters.other_epoch, 0U);
    EXPECT_EQ(counters.unknown_peer, 0U);
    EXPECT_EQ(counters.misaddressed, 0U);
    copies += counters.replayed + counters.repeated;
    for (const std::uint64_t fault : group.stack(rank).port().faults()) {
      EXPECT_EQ(fault, 0U) << "rank " << rank;
    }
  }
  EXPECT_LE(copies, group.network().totals().duplicated);
}

History history_of(SimulatedGroup& group, std::uint16_t ranks, base::Instant begin) {
  History history;
  history.took_ns = (group.network().now() - begin).count();
  history.packets = group.network().totals().sent;
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    history.counts.push_back(std::bit_cast<Counts>(group.stack(rank).endpoint().counters()));
  }
  return history;
}

class Job {
 public:
  Job(const Start& start, What what) : start_(start), group_(options_of(start)) {
    add_faults(group_, kEdgeRanks);
    for (std::size_t i = 0; i < kRounds * kSums; ++i) {
      sums_.emplace_back(i, what == What::kEverything && i % 2 == 1);
    }
    for (std::size_t i = 0; i < kRounds * kPairs; ++i) {
      rings_.emplace_back(static_cast<std::int32_t>(i));
    }
  }

  // The second round begins `pause` after the first.
  History run(base::Duration pause = kPause) {
    const base::Instant begin{base::microseconds(start_.clock_us)};
    submit(0, begin);
    submit(1, begin + pause);
    const std::size_t operations = kEdgeRanks * kRounds * (kSums + 2 * kPairs);
    EXPECT_TRUE(group_.run(operations, begin.since_zero() + pause + kPatience)) << "it hangs";
    check();
    return history_of(group_, kEdgeRanks, begin + pause);
  }

 private:
  void submit(std::size_t round, base::Instant when) {
    for (std::uint16_t rank = 0; rank < kEdgeRanks; ++rank) {
      for (std::size_t i = round * kSums; i < (round + 1) * kSums; ++i) {
        group_.submit_at(when, rank, sums_[i].tensors.at(rank, sums_[i].operation));
      }
      for (std::size_t i = round * kPairs; i < (round + 1) * kPairs; ++i) {
        const auto tag = static_cast<std::uint32_t>(i % 2);
        group_.submit_at(when, rank, rings_[i].of(Kind::kReceive, rank, tag));
        group_.submit_at(when, rank, rings_[i].of(Kind::kSend, rank, tag));
      }
    }
  }

  void check() {
    for (std::uint16_t rank = 0; rank < kEdgeRanks; ++rank) {
      for (const Ending& ending : group_.endings(rank)) {
        EXPECT_TRUE(ending.status.ok()) << ending.status.message();
      }
    }
    for (const Sum& sum : sums_) {
      EXPECT_LT(sum.worst_error(), sum.operation.tolerance ? 0.05 : 1e-12);
    }
    for (const Ring& ring : rings_) {
      EXPECT_TRUE(ring.has_arrived());
    }
    expect_nothing_strange(group_, kEdgeRanks);
  }

  Start start_;
  SimulatedGroup group_;
  std::vector<Sum> sums_;
  std::vector<Ring> rings_;
};

// The history of a run without wraps.
const History& usual(What what) {
  static const History exact = Job(Start{}, What::kExact).run();
  static const History everything = Job(Start{}, What::kEverything).run();
  return what == What::kExact ? exact : everything;
}

// ------------------------------------------------------------------ counters

class CounterEdges : public testing::TestWithParam<Start> {};
INSTANTIATE_TEST_SUITE_P(
    Starts, CounterEdges,
    testing::Values(Start{.name = "numbers_5_before_32_bits", .number = kTurn - 5},
                    Start{.name = "numbers_1_before_32_bits", .number = kTurn - 1},
                    Start{.name = "numbers_3_before_33_bits", .number = 2 * kTurn - 3},
                    Start{.name = "numbers_1_before_31_bits", .number = kTurn / 2 - 1},
                    Start{.name = "epoch_1_before_16_bits", .epoch = kEpochTurn - 2},
                    Start{.name = "epoch_last_of_16_bits", .epoch = kEpochTurn - 1},
                    Start{.name = "epoch_first_behind_16_bits", .epoch = kEpochTurn},
                    Start{.name = "epoch_second_behind_16_bits", .epoch = kEpochTurn + 1},
                    Start{.name = "clock_before_32_bits", .clock_us = kTurn - 500},
                    Start{.name = "clock_before_31_bits", .clock_us = kTurn / 2 - 500},
                    Start{.name = "pause_over_clocks_edge", .clock_us = kTurn - 100'000}),
    name_of);

TEST_P(CounterEdges, ChangeNothing) {
  EXPECT_EQ(Job(GetParam(), What::kEverything).run(), usual(What::kEverything));
}

// ------------------------------------------------------------------ operations

// The owners of tolerant pieces depend on the operation's number, so these are compared with the
// true sum only.
class OperationEdges : public testing::TestWithParam<Start> {};
INSTANTIATE_TEST_SUITE_P(
    Starts, OperationEdges,
    testing::Values(Start{.name = "5_before_32_bits", .operation = kTurn - 5},
                    Start{.name = "1_before_32_bits", .operation = kTurn - 1},
                    Start{.name = "3_before_33_bits", .operation = 2 * kTurn - 3},
                    Start{.name = "1_before_31_bits", .operation = kTurn / 2 - 1},
                    Start{.name = "everything",
                          .number = kTurn - 5,
                          .operation = kTurn - 5,
                          .epoch = kEpochTurn - 1,
                          .clock_us = kTurn - 500}),
    name_of);

TEST_P(OperationEdges, ChangeNothingWhereEverythingArrives) {
  EXPECT_EQ(Job(GetParam(), What::kExact).run(), usual(What::kExact));
}

TEST_P(OperationEdges, LeaveTolerantSumsAsGood) {
  Job(GetParam(), What::kEverything).run();
}

// With the error of each sum.
struct ServedHistory {
  History history;
  std::vector<double> errors;
};

ServedHistory run_with_server(const Start& start) {
  SimulatedGroupOptions options = options_of(start);
  options.ranks = kEdgeRanks + 1;
  options.servers = 1;
  SimulatedGroup group(options);
  add_faults(group, kEdgeRanks + 1);
  std::vector<Sum> sums;
  for (std::size_t i = 0; i < 2 * kSums; ++i) {
    sums.emplace_back(i, /*is_tolerant=*/i % 2 == 1);
  }
  const base::Instant begin{base::microseconds(start.clock_us)};
  for (std::uint16_t rank = 0; rank < kEdgeRanks; ++rank) {
    for (Sum& sum : sums) {
      group.submit_at(begin, rank, sum.tensors.at(rank, sum.operation));
    }
  }
  // The server also ends each operation.
  EXPECT_TRUE(group.run(sums.size() * (kEdgeRanks + 1), begin.since_zero() + kPatience))
      << "it hangs";
  expect_nothing_strange(group, kEdgeRanks + 1);
  ServedHistory served{history_of(group, kEdgeRanks + 1, begin), {}};
  for (const Sum& sum : sums) {
    served.errors.push_back(sum.worst_error());
  }
  return served;
}

// One server owns all pieces, whatever the operation's number. The rotation depends on the number,
// so the error of a tolerant sum varies a little. Clocks start as usual: a server waits for its
// workers from time zero, and an hour of heartbeats takes long to simulate.
TEST_P(OperationEdges, ChangeNothingWithAParameterServer) {
  Start start = GetParam();
  start.clock_us = Start{}.clock_us;
  const ServedHistory usual = run_with_server(Start{});
  const ServedHistory at_edge = run_with_server(start);
  EXPECT_EQ(at_edge.history, usual.history);
  for (std::size_t i = 0; i < usual.errors.size(); ++i) {
    EXPECT_LE(at_edge.errors[i], 1.25 * usual.errors[i]) << i;
    EXPECT_LT(usual.errors[i], i % 2 == 1 ? 0.15 : 1e-12) << i;
  }
}

void edge_rank_leaves_when_idle(SimulatedGroup& group, std::uint16_t rank) {
  if (group.stack(rank).engine().is_idle()) {
    group.leave(rank);
    return;
  }
  group.network().at(group.network().now() + base::microseconds(10),
                     [&group, rank](base::Instant) { edge_rank_leaves_when_idle(group, rank); });
}

// A rank that is done and owes nothing leaves, and names the operations that it has ended.
TEST_P(OperationEdges, AreKnownToRanksThatLeave) {
  SimulatedGroup group(options_of(GetParam()));
  add_faults(group, kEdgeRanks);
  std::vector<Sum> sums;
  for (std::size_t i = 0; i < kSums; ++i) {
    sums.emplace_back(i, /*is_tolerant=*/i % 2 == 1);
  }
  group.on_ending([&](std::uint16_t rank, const Ending& ending) {
    EXPECT_TRUE(ending.status.ok()) << ending.status.message();
    if (group.endings(rank).size() == kSums) {
      edge_rank_leaves_when_idle(group, rank);
    }
  });
  for (std::uint16_t rank = 0; rank < kEdgeRanks; ++rank) {
    for (Sum& sum : sums) {
      ASSERT_TRUE(group.submit(rank, sum.tensors.at(rank, sum.operation)).ok());
    }
  }
  ASSERT_TRUE(group.run(kSums * kEdgeRanks)) << "it hangs";
  for (const Sum& sum : sums) {
    EXPECT_LT(sum.worst_error(), sum.operation.tolerance ? 0.05 : 1e-12);
  }
}

// ------------------------------------------------------------------ idleness

// Reports and round trips refer to packets that answer each other, however long the pause before.
TEST(IdleEdges, OfClocksChangeNothing) {
  const History minute = Job(Start{}, What::kEverything).run(base::seconds(60));
  for (const std::int64_t us : {kTurn / 2 - 100, kTurn / 2 + 100, kTurn - 100, kTurn + 100}) {
    EXPECT_EQ(Job(Start{}, What::kEverything).run(base::microseconds(us)), minute) << us;
  }
}

}  // namespace
}  // namespace spillway::sim
