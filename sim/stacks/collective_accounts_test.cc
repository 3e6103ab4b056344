// SPDX-License-Identifier: Apache-2.0
//
// The accounting of tolerant all-reduces, in the simulated network. All ranks report the same
// contributors. With error feedback, cut, lost, late or dropped values come back exactly.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "codec/sample_data.h"
#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

// ------------------------------------------------------------------ accounts

using collective::Extent;
using collective::Operation;
using collective::OperationReport;
using collective::ShardDelivery;

// One row per shard, with its own packet plan: a shard's contributors are then those of all its
// elements.
constexpr std::size_t kRow = 8192;

// Every rank starts a step when it has the one before, always with the same gradient. used()
// returns what all sums contain, residuals() what the ranks still owe.
class FeedbackTraining {
 public:
  FeedbackTraining(SimulatedGroup& group, std::uint16_t ranks, const Operation& operation,
                   std::uint64_t steps)
      : group_(group),
        ranks_(ranks),
        operation_(operation),
        steps_(steps),
        gradients_(ranks, operation.count, 3),
        outputs_(steps,
                 std::vector<std::vector<float>>(ranks, std::vector<float>(operation.count))),
        next_(ranks, 0) {
    group_.on_ending([this](std::uint16_t rank, const Ending& ending) {
      EXPECT_TRUE(ending.status.ok()) << ending.status.message();
      if (++next_[rank] < steps_) {
        submit(rank);
      }
    });
  }

  void run() {
    for (std::uint16_t rank = 0; rank < ranks_; ++rank) {
      submit(rank);
    }
    ASSERT_TRUE(group_.run(ranks_ * steps_, base::seconds(20)));
    group_.on_ending({});
  }

  // All ranks contribute zeros, so the sum is what they have kept.
  std::vector<double> residuals() {
    Operation ask = operation_;
    ask.op = collective::ReduceOp::kSum;
    ask.tolerance->precision = ask.tolerance->gather_precision = 32;
    ask.tolerance->loss_bound_ppm = 0;
    ask.tolerance->min_planes = 32;
    ask.tolerance->least_contributors = 0.0;
    const std::vector<float> zeros(operation_.count);
    std::vector<std::vector<float>> kept(ranks_, std::vector<float>(operation_.count));
    for (std::uint16_t rank = 0; rank < ranks_; ++rank) {
      EXPECT_TRUE(group_.submit(rank, on_buffers(ask, zeros.data(), kept[rank].data())).ok());
    }
    EXPECT_TRUE(group_.run(ranks_ * (steps_ + 1), base::seconds(20)));
    return {kept[0].begin(), kept[0].end()};
  }

  // Over all steps: the means times their numbers of contributors.
  std::vector<double> used() const {
    std::vector<double> sum(operation_.count);
    for (std::uint64_t step = 0; step < steps_; ++step) {
      for (const ShardDelivery& shard : report(0, step).shards) {
        for (std::size_t i = shard.extent.first; i < shard.extent.first + shard.extent.count; ++i) {
          sum[i] += double{outputs_[step][0][i]} * shard.contributors;
        }
      }
    }
    return sum;
  }

  void expect_nothing_lost() {
    const std::vector<double> in_sums = used();
    const std::vector<double> kept = residuals();
    double error = 0;
    double energy = 0;
    for (std::size_t i = 0; i < operation_.count; ++i) {
      const double all = double{gradients_.mean[i]} * ranks_ * static_cast<double>(steps_);
      error += std::pow(in_sums[i] + kept[i] - all, 2);
      energy += all * all;
    }
    EXPECT_LT(error / energy, 1e-10);
    double owed = 0;
    for (const double value : kept) {
      owed += value * value;
    }
    EXPECT_GT(owed / energy, 1e-9);  // or this test shows nothing
  }

  void expect_the_same_everywhere() const {
    for (std::uint64_t step = 0; step < steps_; ++step) {
      for (std::uint16_t rank = 1; rank < ranks_; ++rank) {
        ASSERT_EQ(outputs_[step][rank], outputs_[step][0]) << "step " << step;
        expect_alike(report(rank, step), report(0, step));
      }
    }
  }

  const OperationReport& report(std::uint16_t rank, std::uint64_t step) const {
    return group_.endings(rank)[step].report;
  }
  const std::vector<float>& output(std::uint64_t step) const { return outputs_[step][0]; }

 private:
  void submit(std::uint16_t rank) {
    EXPECT_TRUE(group_
                    .submit(rank, on_buffers(operation_, gradients_.input[rank].data(),
                                             outputs_[next_[rank]][rank].data()))
                    .ok());
  }

  static void expect_alike(const OperationReport& one, const OperationReport& other) {
    ASSERT_EQ(one.shards.size(), other.shards.size());
    for (std::size_t i = 0; i < one.shards.size(); ++i) {
      ASSERT_EQ(one.shards[i].contributors, other.shards[i].contributors);
      ASSERT_EQ(one.shards[i].owner, other.shards[i].owner);
      ASSERT_EQ(one.shards[i].extent.first, other.shards[i].extent.first);
    }
    ASSERT_EQ(one.absent.size(), other.absent.size());
    ASSERT_EQ(one.absent_elements(), other.absent_elements());
    ASSERT_EQ(one.contributors, other.contributors);
    ASSERT_EQ(one.empty_shards, other.empty_shards);
  }

  SimulatedGroup& group_;
  std::uint16_t ranks_;
  Operation operation_;
  std::uint64_t steps_;
  Gradients gradients_;
  std::vector<std::vector<std::vector<float>>> outputs_;  // by step and rank
  std::vector<std::uint64_t> next_;
};

TEST(Accounts, WhatIsCutOrLostComesBackExactly) {
  constexpr std::uint16_t kRanks = 4;
  SimulatedGroup group({.ranks = kRanks, .seed = 5, .cut_share = 0.3});
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    add_fault(group, up_link(rank), scenario::FaultKind::kLoss, 0.1);
  }
  const Operation operation = tolerant(
      kRanks * kRow, {.gather_precision = 32, .loss_bound_ppm = 400'000, .feedback_tensor = 9});
  FeedbackTraining training(group, kRanks, operation, 20);
  training.run();
  std::uint64_t missing = 0;
  std::uint64_t trimmed = 0;
  for (std::uint64_t step = 0; step < 20; ++step) {
    missing += training.report(0, step).total().missing;
    trimmed += training.report(0, step).total().trimmed;
  }
  EXPECT_GT(missing, 0U);
  EXPECT_GT(trimmed, 0U);
  training.expect_the_same_everywhere();
  training.expect_nothing_lost();
}

TEST(Accounts, WhatIsLateOrDroppedComesBackExactlyAndIsInTheReport) {
  constexpr std::uint16_t kRanks = 5;
  constexpr std::uint64_t kSteps = 60;
  constexpr std::uint16_t kLate = 3;
  SimulatedGroup group(
      {.ranks = kRanks, .rate = base::gigabits_per_second(1), .seed = 2, .cut_share = 0.01});
  for (const std::string& link : {up_link(kLate), down_link(kLate)}) {
    add_fault(group, link, scenario::FaultKind::kDown, 1.0, base::Instant(base::milliseconds(20)),
              base::Instant(base::milliseconds(45)));
  }
  const Operation operation = tolerant(
      kRanks * kRow, {.gather_precision = 32, .feedback_tensor = 9, .least_contributors = 0.6});
  FeedbackTraining training(group, kRanks, operation, kSteps);
  training.run();
  unsigned without_one = 0;
  unsigned with_absent = 0;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const OperationReport& report = training.report(0, step);
    ASSERT_EQ(report.shards.size(), kRanks);
    without_one += report.contributors < kRanks ? 1 : 0;
    with_absent += report.absent.empty() ? 0 : 1;
    EXPECT_EQ(report.absent_elements(), report.empty_shards * kRow);
    for (const Extent& extent : report.absent) {
      for (std::size_t i = extent.first; i < extent.first + extent.count; ++i) {
        ASSERT_EQ(training.output(step)[i], 0.0F);
      }
    }
  }
  EXPECT_GT(without_one, 0U);
  EXPECT_GT(with_absent, 0U);
  training.expect_the_same_everywhere();
  training.expect_nothing_lost();
}

TEST(Accounts, TheMeanIsOverWhoCame) {
  constexpr std::uint16_t kRanks = 4;
  constexpr std::uint64_t kWarmUp = 20;
  SimulatedGroup group({.ranks = kRanks});
  const Operation operation =
      tolerant(kRanks * kRow, {.precision = 32, .gather_precision = 32, .least_contributors = 0.5});
  Gradients gradients(kRanks, operation.count, 7);
  for (std::uint64_t step = 0; step < kWarmUp; ++step) {
    run_once(group, gradients, operation, kRanks, step * kRanks);
  }
  // The last rank calls later than any other rank waits.
  for (std::uint16_t rank = 0; rank + 1 < kRanks; ++rank) {
    ASSERT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
  }
  ASSERT_TRUE(group.run((kWarmUp + 1) * kRanks - 1));
  const OperationReport& report = group.endings(1).back().report;
  EXPECT_EQ(report.contributors, kRanks - 1);
  EXPECT_EQ(report.empty_shards, 1);
  for (const ShardDelivery& shard : report.shards) {
    for (std::size_t i = shard.extent.first; i < shard.extent.first + shard.extent.count; ++i) {
      const float mean =
          (gradients.input[0][i] + gradients.input[1][i] + gradients.input[2][i]) / 3;
      ASSERT_NEAR(gradients.output[1][i], shard.contributors > 0 ? mean : 0.0F, 1e-4);
    }
  }
  ASSERT_TRUE(group.submit(kRanks - 1, gradients.at(kRanks - 1, operation)).ok());
  ASSERT_TRUE(group.run((kWarmUp + 1) * kRanks));
  EXPECT_EQ(gradients.output[kRanks - 1], gradients.output[0]);
  EXPECT_EQ(group.endings(kRanks - 1).back().report.absent_elements(), kRow);
}

TEST(Accounts, ServersTellWorkersWhoIsIn) {
  constexpr std::uint16_t kWorkers = 3;
  constexpr std::uint64_t kWarmUp = 20;
  SimulatedGroup group({.ranks = kWorkers + 1, .servers = 1});
  const Operation operation = tolerant(
      kRow,
      {.precision = 32, .gather_precision = 32, .feedback_tensor = 4, .least_contributors = 0.5});
  Gradients gradients(kWorkers, kRow, 7);
  for (std::uint64_t step = 0; step < kWarmUp; ++step) {
    for (std::uint16_t rank = 0; rank < kWorkers; ++rank) {
      ASSERT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
    }
    ASSERT_TRUE(group.run((step + 1) * (kWorkers + 1)));
  }
  for (std::uint16_t rank = 0; rank + 1 < kWorkers; ++rank) {
    ASSERT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
  }
  ASSERT_TRUE(group.run((kWarmUp + 1) * (kWorkers + 1) - 1));
  EXPECT_EQ(group.endings(0).back().report.contributors, kWorkers - 1);
  ASSERT_TRUE(group.submit(kWorkers - 1, gradients.at(kWorkers - 1, operation)).ok());
  ASSERT_TRUE(group.run((kWarmUp + 1) * (kWorkers + 1)));
  EXPECT_EQ(group.endings(kWorkers - 1).back().report.contributors, kWorkers - 1);
  // The late part is in the next mean, so it counts twice.
  const std::uint64_t before = (kWarmUp + 1) * (kWorkers + 1);
  for (std::uint16_t rank = 0; rank < kWorkers; ++rank) {
    ASSERT_TRUE(group.submit(rank, gradients.at(rank, operation)).ok());
  }
  ASSERT_TRUE(group.run(before + kWorkers + 1));
  ASSERT_EQ(group.endings(0).back().report.contributors, kWorkers);
  for (std::size_t i = 0; i < kRow; ++i) {
    const float expected =
        (gradients.input[0][i] + gradients.input[1][i] + 2 * gradients.input[2][i]) / 3;
    ASSERT_NEAR(gradients.output[0][i], expected, 1e-4);
  }
}

// ------------------------------------------------------------------ memory

// Exact operations of ranks that share memory: with and without room, readable both ways, one way
// or not at all, and with a rank that reports wrong places.

using collective::Kind;
using collective::MemoryPlace;
using collective::Operation;

constexpr std::uint16_t kMemoryRanks = 4;

// Segments of ranks in one process. Offsets are never reused, so a block that was released too
// early is missed.
class PretendedMemory final : public collective::PeerMemory {
 public:
  using All = std::vector<std::unique_ptr<PretendedMemory>>;

  PretendedMemory(const All& all, std::size_t room) : all_(all), room_(room) {}

  bool is_local_rank(std::uint16_t peer) const override { return peer < all_.size(); }
  bool is_read_by(std::uint16_t peer) const override { return peer != cannot_read_us; }
  std::optional<std::uint64_t> stage(base::ByteView bytes) override {
    if (used_ + bytes.size() > room_) {
      ++refusals;
      return std::nullopt;
    }
    used_ += bytes.size();
    most_used = std::max(most_used, used_);
    blocks_.emplace(next_, std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
    return next_++;
  }
  void release(std::uint64_t offset) override {
    ASSERT_TRUE(blocks_.contains(offset));
    used_ -= blocks_[offset].size();
    blocks_.erase(offset);
  }
  bool read(std::uint16_t peer, const MemoryPlace& place, base::MutableByteView to) override {
    const auto found = all_[peer]->blocks_.find(place.offset + misread);
    if (found == all_[peer]->blocks_.end() || found->second.size() != to.size()) {
      failure_ = {peer, {base::StatusCode::kPeerFailed, fmt::format("rank {} lies", peer)}};
      return false;
    }
    std::copy(found->second.begin(), found->second.end(), to.begin());
    ++reads;
    return true;
  }
  const std::optional<collective::MemoryFailure>& failure() const override { return failure_; }
  bool is_empty() const { return blocks_.empty(); }

  std::optional<std::uint16_t> cannot_read_us;
  std::uint64_t misread = 0;
  std::size_t reads = 0;
  std::size_t refusals = 0;
  std::size_t most_used = 0;

 private:
  const All& all_;
  std::size_t room_;
  std::size_t used_ = 0;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, std::vector<std::uint8_t>> blocks_;
  std::optional<collective::MemoryFailure> failure_;
};

class CollectiveMemory : public ::testing::Test {
 protected:
  void share(std::size_t room) {
    SimulatedGroupOptions options{.ranks = kMemoryRanks};
    options.plan = {.piece_bytes = 16 * 1024, .window = 4, .message_bytes = 64 * 1024};
    for (std::uint16_t rank = 0; rank < kMemoryRanks; ++rank) {
      memories_.push_back(std::make_unique<PretendedMemory>(memories_, room));
      options.memories.push_back(memories_.back().get());
    }
    group_ = std::make_unique<SimulatedGroup>(options);
  }

  // Element i of rank r is r * 1000 + i.
  static std::vector<std::int32_t> values(std::uint16_t rank, std::size_t count) {
    std::vector<std::int32_t> result(count);
    std::iota(result.begin(), result.end(), rank * 1000);
    return result;
  }

  // Runs one operation of each kind at the same time, all longer than their messages.
  void run_everything() {
    constexpr std::size_t kCount = 60'000;
    struct Buffers {
      std::vector<std::int32_t> input, reduced, gathered, exchanged, broadcast, passed;
    };
    std::vector<Buffers> ranks(kMemoryRanks);
    for (std::uint16_t rank = 0; rank < kMemoryRanks; ++rank) {
      Buffers& mine = ranks[rank];
      mine.input = values(rank, kCount);
      mine.reduced.resize(kCount);
      mine.gathered.resize(kMemoryRanks * kCount);
      mine.exchanged.resize(kCount);
      mine.broadcast = mine.input;
      mine.passed.resize(kCount);
      Operation operation{.count = kCount};
      operation.type = collective::DataType::kInt32;
      const auto submit = [&](Kind kind, std::size_t count, const void* in, void* out,
                              std::uint16_t root = 0) {
        operation.kind = kind;
        operation.count = count;
        operation.root = root;
        const base::Status status = group_->submit(rank, on_buffers(operation, in, out));
        ASSERT_TRUE(status.ok()) << status.message();
      };
      submit(Kind::kAllReduce, kCount, mine.input.data(), mine.reduced.data());
      submit(Kind::kAllGather, kCount, mine.input.data(), mine.gathered.data());
      submit(Kind::kAllToAll, kCount / kMemoryRanks, mine.input.data(), mine.exchanged.data());
      submit(Kind::kBroadcast, kCount, mine.broadcast.data(), mine.broadcast.data(), 2);
      submit(Kind::kSend, kCount, mine.input.data(), nullptr, (rank + 1) % kMemoryRanks);
      submit(Kind::kReceive, kCount, nullptr, mine.passed.data(),
             (rank + kMemoryRanks - 1) % kMemoryRanks);
    }
    ASSERT_TRUE(group_->run(6 * kMemoryRanks));
    for (std::uint16_t rank = 0; rank < kMemoryRanks; ++rank) {
      for (const Ending& ending : group_->endings(rank)) {
        ASSERT_TRUE(ending.status.ok()) << ending.status.message();
      }
      const Buffers& mine = ranks[rank];
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(mine.reduced[i], 6000 + 4 * static_cast<std::int32_t>(i));
      }
      for (std::uint16_t other = 0; other < kMemoryRanks; ++other) {
        const auto block = static_cast<std::ptrdiff_t>(kCount / kMemoryRanks);
        ASSERT_TRUE(
            std::equal(ranks[other].input.begin(), ranks[other].input.end(),
                       mine.gathered.begin() + static_cast<std::ptrdiff_t>(kCount) * other));
        ASSERT_TRUE(std::equal(ranks[other].input.begin() + block * rank,
                               ranks[other].input.begin() + block * (rank + 1),
                               mine.exchanged.begin() + block * other));
      }
      ASSERT_EQ(mine.broadcast, ranks[2].input);
      ASSERT_EQ(mine.passed, ranks[(rank + kMemoryRanks - 1) % kMemoryRanks].input);
      EXPECT_TRUE(memories_[rank]->is_empty());
    }
  }

  PretendedMemory::All memories_;
  std::unique_ptr<SimulatedGroup> group_;
};

TEST_F(CollectiveMemory, WithRoomEverythingGoesThroughIt) {
  share(std::size_t{64} << 20);
  run_everything();
  for (std::uint16_t rank = 0; rank < kMemoryRanks; ++rank) {
    EXPECT_GT(memories_[rank]->reads, 10U);
    EXPECT_EQ(memories_[rank]->refusals, 0U);
    for (const Ending& ending : group_->endings(rank)) {
      EXPECT_LT(ending.report.wire_bytes_sent, 60'000U) << "places, not bytes";
    }
  }
}

TEST_F(CollectiveMemory, WhatGoesToSeveralRanksIsStagedOnce) {
  share(std::size_t{64} << 20);
  std::vector<std::vector<std::uint8_t>> out(kMemoryRanks,
                                             std::vector<std::uint8_t>(kMemoryRanks * 60'000));
  const std::vector<std::uint8_t> in(60'000, 5);
  Operation operation{.count = in.size()};
  operation.kind = Kind::kAllGather;
  operation.type = collective::DataType::kUint8;
  for (std::uint16_t rank = 0; rank < kMemoryRanks; ++rank) {
    ASSERT_TRUE(group_->submit(rank, on_buffers(operation, in.data(), out[rank].data())).ok());
  }
  ASSERT_TRUE(group_->run(kMemoryRanks));
  for (std::uint16_t rank = 0; rank < kMemoryRanks; ++rank) {
    EXPECT_EQ(memories_[rank]->reads, kMemoryRanks - 1U);
    EXPECT_EQ(memories_[rank]->most_used, in.size());
    EXPECT_EQ(out[rank], std::vector<std::uint8_t>(kMemoryRanks * 60'000, 5));
  }
}

TEST_F(CollectiveMemory, WithoutRoomItGoesThroughTheNetwork) {
  share(0);
  run_everything();
  for (const auto& memory : memories_) {
    EXPECT_EQ(memory->reads, 0U);
  }
}

TEST_F(CollectiveMemory, WithLittleRoomSomeWaitAndSomeGoThroughTheNetwork) {
  for (const std::size_t room : {20'000U, 70'000U, 200'000U}) {
    memories_.clear();
    share(room);
    run_everything();
    for (const auto& memory : memories_) {
      EXPECT_GT(memory->reads, 0U);
      EXPECT_GT(memory->refusals, 0U);
      EXPECT_LE(memory->most_used, room);
    }
  }
}

TEST_F(CollectiveMemory, WhoCannotReadGetsItThroughTheNetwork) {
  share(std::size_t{64} << 20);
  memories_[0]->cannot_read_us = 1;
  memories_[3]->cannot_read_us = 2;
  run_everything();
}

TEST_F(CollectiveMemory, ALieEndsTheOperationAndNamesTheLiar) {
  share(std::size_t{64} << 20);
  memories_[1]->misread = 1000;  // rank 1 misreads every place that it is told
  std::vector<std::vector<std::int32_t>> buffers;
  Operation operation{.count = 100'000};
  operation.kind = Kind::kBroadcast;
  operation.type = collective::DataType::kInt32;
  for (std::uint16_t rank = 0; rank < kMemoryRanks; ++rank) {
    buffers.push_back(values(rank, 100'000));
    ASSERT_TRUE(
        group_->submit(rank, on_buffers(operation, buffers[rank].data(), buffers[rank].data()))
            .ok());
  }
  ASSERT_TRUE(group_->run(kMemoryRanks, base::seconds(20)));
  const base::Status& found = group_->endings(1).front().status;
  EXPECT_EQ(found.code(), base::StatusCode::kPeerFailed);
  EXPECT_EQ(found.message(), "rank 0 lies");
  for (const std::uint16_t rank : {2, 3}) {
    EXPECT_EQ(group_->endings(rank).front().status.code(), base::StatusCode::kPeerFailed);
  }
}

}  // namespace
}  // namespace spillway::sim
