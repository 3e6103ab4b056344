// SPDX-License-Identifier: Apache-2.0
//
// Exact operations of ranks that share memory: with and without room, readable both ways, one way
// or not at all, and with a rank that reports wrong places.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

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

  bool is_near(std::uint16_t peer) const override { return peer < all_.size(); }
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
