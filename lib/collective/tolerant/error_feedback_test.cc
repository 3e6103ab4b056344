// SPDX-License-Identifier: Apache-2.0
//
// A rank keeps for the next time exactly the part of its contribution that is not in the sum.
#include "collective/tolerant/error_feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "codec/sample_data.h"

namespace spillway::collective {
namespace {

// Rank 1 of two, which sends a tensor coarsely, again and again.
class Contributor {
 public:
  static constexpr std::size_t kLength = 3 * 8192;

  // `least` above 0: its shard may still be dropped.
  explicit Contributor(std::uint64_t tensor, double least = 0.0) {
    config_.group = kPair;
    operation_.tolerance =
        Tolerance{.precision = 2, .feedback_tensor = tensor, .least_contributors = least};
    operation_.count = kLength;
    residual_.resize(tensor != 0 ? kLength : 0);
  }

  void encode(const std::vector<float>& gradient) {
    operation_.input = gradient.data();
    message_ = {.operation = ++sequence_, .source = 1};
    piece_.contribution = std::make_unique<PlaneSource>(plan_);
    EXPECT_TRUE(encode_contribution(context(), message_, piece_).ok());
  }
  // So many bytes of each packet are in the sum; returns the estimate there.
  std::vector<float> settle(const std::vector<std::uint16_t>& used) {
    piece_.receipt.used = used;
    std::vector<float> estimate(kLength);
    piece_.contribution->decode_part(used, estimate, config_.job, message_);
    if (!residual_.empty()) {
      EXPECT_TRUE(settle_contribution(context(), message_, piece_).ok());
    }
    return estimate;
  }
  std::vector<float> send(const std::vector<float>& gradient) {
    encode(gradient);
    return settle(everything());
  }
  void hold_back(const std::vector<float>& gradient) {
    operation_.input = gradient.data();
    keep_input(context(), piece_);
  }
  void drop() { restore(context(), piece_); }

  std::vector<std::uint16_t> everything() const {
    return std::vector<std::uint16_t>(plan_.packet_count(), UINT16_MAX);
  }
  const packetize::PacketPlan& plan() const { return plan_; }
  const std::vector<float>& residual() const { return residual_; }
  bool owes_nothing() const {
    return std::all_of(residual_.begin(), residual_.end(), [](float v) { return v == 0.0F; });
  }

 private:
  static constexpr Group kPair{.rank = 1, .world = 2};

  PieceContext context() { return {operation_, config_, residual_}; }

  packetize::PacketPlan plan_ = packetize::PacketPlan::make(kLength, {}, {.precision = 2}).value();
  std::vector<float> residual_;
  std::uint32_t sequence_ = 0;
  wire::MessageId message_;
  Operation operation_;
  RunConfig config_;
  PieceState piece_{{.extent = {0, kLength}, .owner = 0}, kPair};
};

void expect_sums(const std::vector<float>& one, const std::vector<float>& other,
                 const std::vector<float>& both) {
  for (std::size_t i = 0; i < both.size(); ++i) {
    ASSERT_NEAR(one[i] + other[i], both[i], 1e-5) << i;
  }
}

TEST(ErrorFeedback, WhatIsUsedAndWhatIsKeptMakeTheInput) {
  Contributor rank(7);
  const std::vector<float> gradient = codec::gaussian_values(Contributor::kLength, 1);
  rank.encode(gradient);
  EXPECT_EQ(rank.residual(), gradient);  // until an owner says that something arrived
  // In the first row a packet is missing and another was cut, inside a plane; the second row does
  // not count.
  std::vector<std::uint16_t> used = rank.everything();
  used[0] = 0;
  used[2] = 37;
  const std::size_t second = rank.plan().first_packet(1);
  std::fill_n(used.begin() + static_cast<std::ptrdiff_t>(second), rank.plan().packets_in(1),
              std::uint16_t{0});
  const std::vector<float> estimate = rank.settle(used);
  expect_sums(estimate, rank.residual(), gradient);
  for (std::size_t i = 8192; i < 2 * 8192; ++i) {
    ASSERT_EQ(rank.residual()[i], gradient[i]);
  }
  EXPECT_GT(codec::nmse(estimate, gradient), 0.1);  // or this test shows nothing
}

TEST(ErrorFeedback, WhatWasHeldBackIsKeptWhole) {
  Contributor rank(7);
  const std::vector<float> gradient = codec::gaussian_values(Contributor::kLength, 1);
  rank.hold_back(gradient);
  EXPECT_EQ(rank.residual(), gradient);
  rank.hold_back(gradient);
  EXPECT_EQ(rank.residual()[5], 2 * gradient[5]);
}

TEST(ErrorFeedback, WhatWasDroppedAfterAllIsOwedAgain) {
  Contributor rank(7, /*least=*/0.5);
  const std::vector<float> gradient = codec::gaussian_values(Contributor::kLength, 1);
  rank.send(gradient);
  EXPECT_NE(rank.residual(), gradient);
  rank.drop();
  EXPECT_EQ(rank.residual(), gradient);
}

TEST(ErrorFeedback, AReceiptThatClaimsMoreThanWasSentDoesNoHarm) {
  Contributor rank(7);
  const std::vector<float> gradient = codec::gaussian_values(Contributor::kLength, 1);
  rank.encode(gradient);
  std::vector<std::uint16_t> used = rank.everything();
  used.resize(used.size() + 10, UINT16_MAX);
  expect_sums(rank.settle(used), rank.residual(), gradient);
}

// The error of all that was received, for a gradient that is a fixed direction plus noise.
double error_of_sums(bool has_feedback) {
  constexpr std::uint64_t kSteps = 50;
  Contributor rank(has_feedback ? 7 : 0);
  const std::vector<float> direction = codec::gaussian_values(Contributor::kLength, 1);
  std::vector<float> sent(Contributor::kLength);
  std::vector<float> received(Contributor::kLength);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    std::vector<float> gradient = codec::gaussian_values(Contributor::kLength, 100 + step);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] += direction[i];
    }
    const std::vector<float> came = rank.send(gradient);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      sent[i] += gradient[i];
      received[i] += came[i];
    }
  }
  return codec::nmse(received, sent);
}

TEST(ErrorFeedback, SumsOfWhatIsSentTrackTheSumsOfGradients) {
  EXPECT_LT(error_of_sums(true), 3e-4);
  EXPECT_GT(error_of_sums(false), 3e-3);
}

TEST(ErrorFeedback, ANonFiniteGradientClearsTheResidualInsteadOfPoisoningIt) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Contributor rank(7);
    const std::vector<float> good = codec::gaussian_values(Contributor::kLength, 1);
    rank.send(good);
    EXPECT_FALSE(rank.owes_nothing());
    std::vector<float> gradient = good;
    gradient[5] = bad;
    const std::vector<float> came = rank.send(gradient);
    EXPECT_TRUE(std::any_of(came.begin(), came.end(), [](float v) { return std::isnan(v); }));
    EXPECT_TRUE(rank.owes_nothing());
    EXPECT_LT(codec::nmse(rank.send(good), good), 0.5);
  }
}

}  // namespace
}  // namespace spillway::collective
