// SPDX-License-Identifier: Apache-2.0
//
// Shares by link capacity, in the simulated network: how much of an all-reduce each rank owns while
// background traffic takes most of one rank's link. Times are virtual.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include "sim/stacks/collective_testing.h"

namespace spillway::sim {
namespace {

using collective::Operation;
using collective::ShareRule;

constexpr std::uint16_t kShareRanks = 4;

// Four ranks at 250 Mb/s, and a fifth host from which tenants send to rank 0.
SimulatedGroupOptions options_with(const std::string& tenant, ShareRule rule) {
  SimulatedGroupOptions options;
  options.rate = base::bits_per_second(250'000'000);
  options.scenario =
      "topology one-switch hosts=5 rate=250mbit delay=10us\n"
      "switch mode=ecn queue=128k ecn=32k\n" +  // has no priorities: all traffic shares one queue
      tenant;
  options.limits.survey_bytes = 4'000'000;
  options.shares = rule;
  options.plan = {.piece_bytes = 256 * 1024, .window = 4, .message_bytes = 1 << 20};
  return options;
}

// A sequence of all-reduces of the same length; each rank starts the next when it ends one.
class Series {
 public:
  Series(const SimulatedGroupOptions& options, const Operation& operation, std::size_t operations)
      : group_(options), operation_(operation), operations_(operations) {
    for (std::uint16_t rank = 0; rank < kShareRanks; ++rank) {
      std::vector<float>& input = inputs_.emplace_back(operation.count);
      for (std::size_t i = 0; i < input.size(); ++i) {
        input[i] = static_cast<float>((rank + 1) * (i % 1013)) / 7.0F;
      }
      outputs_.emplace_back(operation.count);
    }
    group_.on_ending([this](std::uint16_t rank, const Ending& ending) {
      EXPECT_TRUE(ending.status.ok()) << ending.status.message();
      if (after_each_ && rank == 0) {
        after_each_();
      }
      if (group_.endings(rank).size() < operations_) {
        submit(rank);
      }
    });
  }

  bool run() {
    for (std::uint16_t rank = 0; rank < kShareRanks; ++rank) {
      submit(rank);
    }
    return group_.run(operations_ * kShareRanks);
  }

  void after_each(std::function<void()> call) { after_each_ = std::move(call); }
  // Replaces the last operation by another of the same length.
  void end_with(const Operation& operation) { last_ = operation; }

  // The mean duration of operations `first` to `end` - 1.
  double milliseconds(std::size_t first, std::size_t end) const {
    const base::Duration time =
        group_.endings(0)[end - 1].report.finished - group_.endings(0)[first].report.started;
    return base::microseconds_of(time) / 1000.0 / static_cast<double>(end - first);
  }
  collective::Shares shares(std::uint16_t rank) { return group_.stack(rank).engine().shares(); }
  float sum(std::size_t index) const {
    float sum = 0.0F;
    for (const std::vector<float>& input : inputs_) {
      sum += input[index];
    }
    return sum;
  }
  const std::vector<float>& output(std::uint16_t rank) const { return outputs_[rank]; }
  SimulatedGroup& group() { return group_; }

 private:
  void submit(std::uint16_t rank) {
    const bool is_last = group_.endings(rank).size() + 1 == operations_;
    const Operation& operation = is_last && last_ ? *last_ : operation_;
    ASSERT_TRUE(
        group_.submit(rank, on_buffers(operation, inputs_[rank].data(), outputs_[rank].data()))
            .ok());
  }

  SimulatedGroup group_;
  Operation operation_;
  std::optional<Operation> last_;
  std::size_t operations_;
  std::function<void()> after_each_;
  std::vector<std::vector<float>> inputs_;
  std::vector<std::vector<float>> outputs_;
};

Operation all_reduce(std::size_t bytes) {
  Operation operation;
  operation.count = bytes / sizeof(float);
  return operation;
}

TEST(CollectiveShares, FollowACrowdOnOneLinkWithTheSameBits) {
  const std::string crowd = "tenant from=host4 to=host0 protocol=udp rate=70% off=0\n";
  Operation direct = all_reduce(8'000'000);  // no other plan has shares
  direct.algorithm = collective::Algorithm::kDirect;
  Series equal(options_with(crowd, ShareRule::kEqual), direct, 8);
  Series measured(options_with(crowd, ShareRule::kAutomatic), direct, 16);
  ASSERT_TRUE(equal.run());
  ASSERT_TRUE(measured.run());
  EXPECT_TRUE(equal.shares(0).are_equal());
  ASSERT_FALSE(measured.shares(0).are_equal());
  EXPECT_LT(measured.shares(0).end_of(0), collective::Shares::kWhole / 6);
  // Single operations differ by a tenth, and shares are equal at first, while nothing is known.
  EXPECT_LT(measured.milliseconds(9, 16), 0.96 * equal.milliseconds(0, 8));
  for (std::uint16_t rank = 0; rank < kShareRanks; ++rank) {
    EXPECT_EQ(measured.shares(rank), measured.shares(0));
    EXPECT_EQ(measured.output(rank), equal.output(0));
  }
}

TEST(CollectiveShares, AreEqualAgainWhenTheCrowdHasGone) {
  constexpr std::size_t kOperations = 26;
  Series series(options_with("tenant from=host4 to=host0 protocol=udp rate=70% on=1s off=100s\n",
                             ShareRule::kAutomatic),
                all_reduce(2'000'000), kOperations);
  std::size_t uneven = 0;
  series.after_each([&] { uneven += series.shares(0).are_equal() ? 0 : 1; });
  ASSERT_TRUE(series.run());
  EXPECT_GT(uneven, 0U);
  EXPECT_TRUE(series.shares(0).are_equal());
}

TEST(CollectiveShares, OnAQuietNetworkStayEqual) {
  Series series(options_with("", ShareRule::kAutomatic), all_reduce(2'000'000), 12);
  bool are_equal = true;
  series.after_each([&] { are_equal &= series.shares(0).are_equal(); });
  ASSERT_TRUE(series.run());
  EXPECT_TRUE(are_equal);
}

// At this rate, delays of hosts look like queueing.
TEST(CollectiveShares, OfFastLinksStayEqual) {
  SimulatedGroupOptions options = options_with("", ShareRule::kAutomatic);
  options.rate = base::gigabits_per_second(10);
  options.scenario =
      "topology one-switch hosts=5 rate=10gbit delay=10us\n"
      "switch mode=ecn queue=4m ecn=2m\n"
      "tenant from=host4 to=host0 protocol=udp rate=70% off=0\n";
  Series series(options, all_reduce(2'000'000), 12);
  ASSERT_TRUE(series.run());
  EXPECT_TRUE(series.shares(0).are_equal());
}

TEST(CollectiveShares, OneRankThatWantsEqualOnesIsEnough) {
  SimulatedGroupOptions options = options_with(
      "tenant from=host4 to=host0 protocol=udp rate=70% off=0\n", ShareRule::kAutomatic);
  options.wants_equal_shares = 2;
  Series series(options, all_reduce(2'000'000), 9);
  ASSERT_TRUE(series.run());
  EXPECT_TRUE(series.shares(0).are_equal());
}

// With error feedback: what a rank owes is kept by element, whichever rank adds it up.
TEST(CollectiveShares, TolerantOnesHaveTheSameSumsEverywhere) {
  Operation operation = all_reduce(2'000'000);
  operation.tolerance = {.precision = 16, .gather_precision = 16, .feedback_tensor = 5};
  Series series(options_with("tenant from=host4 to=host0 protocol=udp rate=70% off=0\n",
                             ShareRule::kAutomatic),
                operation, 14);
  ASSERT_TRUE(series.run());
  ASSERT_FALSE(series.shares(0).are_equal());
  for (std::uint16_t rank = 0; rank < kShareRanks; ++rank) {
    EXPECT_EQ(series.output(rank), series.output(0));
    std::size_t next = 0;
    for (const collective::ShardDelivery& shard :
         series.group().endings(rank).back().report.shards) {
      EXPECT_EQ(shard.extent.first, next);
      EXPECT_EQ(shard.contributors, kShareRanks);
      next += shard.extent.count;
    }
    EXPECT_EQ(next, operation.count);
  }
  double error = 0.0;
  double energy = 0.0;
  for (std::size_t i = 0; i < operation.count; ++i) {
    error += std::pow(series.output(0)[i] - series.sum(i), 2);
    energy += std::pow(series.sum(i), 2);
  }
  EXPECT_LT(error, 0.03 * energy);
}

// With deadlines all pieces are in flight at once, and there is room for those of equal shards.
TEST(CollectiveShares, AreEqualWithDeadlinesWhateverOthersFoundOut) {
  Operation operation = all_reduce(2'000'000);
  operation.tolerance = {.precision = 16, .gather_precision = 16};
  Series series(options_with("tenant from=host4 to=host0 protocol=udp rate=70% off=0\n",
                             ShareRule::kAutomatic),
                operation, 14);
  operation.tolerance->least_contributors = 0.5;
  series.end_with(operation);
  ASSERT_TRUE(series.run());
  ASSERT_FALSE(series.shares(0).are_equal());
  const auto& shards = series.group().endings(0).back().report.shards;
  ASSERT_EQ(shards.size(), std::size_t{kShareRanks});
  for (const collective::ShardDelivery& shard : shards) {
    EXPECT_EQ(shard.extent.count, operation.count / kShareRanks);
  }
}

// ------------------------------------------------------------------ racks

SimulatedGroupOptions thin_uplinks() {
  SimulatedGroupOptions options;
  options.rate = base::bits_per_second(250'000'000);
  options.scenario =
      "topology leaf-spine hosts=4 leaves=2 spines=1 rate=250mbit uplink-rate=100% delay=10us\n"
      "switch mode=spillway queue=128k ecn=32k early-drop=64k trim=384\n";
  options.trim_bytes = 384;
  options.plan = {.piece_bytes = 256 * 1024, .window = 4, .message_bytes = 1 << 20};
  return options;
}

Operation all_reduce_by(collective::Algorithm algorithm) {
  Operation operation = all_reduce(4'000'000);
  operation.algorithm = algorithm;
  return operation;
}

TEST(CollectiveLevels, TakeLessTimeWhereUplinksAreThinWithTheSameBits) {
  Series direct(thin_uplinks(), all_reduce_by(collective::Algorithm::kDirect), 2);
  Series levels(thin_uplinks(), all_reduce_by(collective::Algorithm::kHierarchical), 2);
  ASSERT_TRUE(direct.run());
  ASSERT_TRUE(levels.run());
  EXPECT_LT(levels.milliseconds(0, 2), 0.8 * direct.milliseconds(0, 2));
  for (std::uint16_t rank = 0; rank < kShareRanks; ++rank) {
    EXPECT_EQ(levels.output(rank), direct.output(0));
  }
}

// Nobody says which links are thin: trials on the job's own operations find it out.
TEST(CollectiveLevels, AreFoundByTrialsWhereUplinksAreThin) {
  SimulatedGroupOptions options = thin_uplinks();
  options.limits.survey_bytes = 8'000'000;
  constexpr std::size_t kOperations = 24;
  Series levels(options, all_reduce_by(collective::Algorithm::kHierarchical), 3);
  Series series(options, all_reduce_by(collective::Algorithm::kAutomatic), kOperations);
  ASSERT_TRUE(levels.run());
  ASSERT_TRUE(series.run());
  EXPECT_LT(series.milliseconds(kOperations - 4, kOperations), 1.03 * levels.milliseconds(1, 3));
  for (std::uint16_t rank = 0; rank < kShareRanks; ++rank) {
    EXPECT_EQ(series.group().endings(rank).back().report.algorithm,
              collective::Algorithm::kHierarchical);
    EXPECT_EQ(series.output(rank), levels.output(0));
  }
}

// Where one way is as good as the other, the direct exchange stays.
TEST(CollectiveLevels, AreLeftAloneWhereAllLinksAreAlike) {
  SimulatedGroupOptions options = options_with("", ShareRule::kAutomatic);
  Series series(options, all_reduce_by(collective::Algorithm::kAutomatic), 24);
  ASSERT_TRUE(series.run());
  for (std::uint16_t rank = 0; rank < kShareRanks; ++rank) {
    EXPECT_EQ(series.group().endings(rank).back().report.algorithm, collective::Algorithm::kDirect);
  }
}

}  // namespace
}  // namespace spillway::sim
