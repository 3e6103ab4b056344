// SPDX-License-Identifier: Apache-2.0
#include "codec/error_feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "codec/reference/reference_codec.h"
#include "codec/sample_data.h"

namespace spillway::codec {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Span = std::span<const float>;
using OutSpan = std::span<float>;

base::Status halve(Span in, OutSpan out) {
  std::transform(in.begin(), in.end(), out.begin(), [](float value) { return 0.5F * value; });
  return {};
}

base::Status keep_nothing(Span /*in*/, OutSpan out) {
  std::fill(out.begin(), out.end(), 0.0F);
  return {};
}

base::Status keep_all(Span in, OutSpan out) {
  std::copy(in.begin(), in.end(), out.begin());
  return {};
}

base::Status fail(Span /*in*/, OutSpan /*out*/) {
  return {base::StatusCode::kUnavailable, "the link is down"};
}

// |sum of outputs - sum of inputs|^2 over |sum of inputs|^2 after `steps` steps of a gradient that
// is a fixed direction plus noise.
double drift(const ErrorFeedback::Compressor& compress, int steps, bool feedback) {
  constexpr std::size_t kLength = 1000;
  const std::vector<float> direction = gaussian_values(kLength, 1);
  ErrorFeedback errors;
  std::vector<float> sum_in(kLength, 0.0F);
  std::vector<float> sum_out(kLength, 0.0F);
  std::vector<float> out(kLength);
  for (int step = 0; step < steps; ++step) {
    std::vector<float> gradient = gaussian_values(kLength, 100 + static_cast<std::uint64_t>(step));
    for (std::size_t i = 0; i < kLength; ++i) {
      gradient[i] += direction[i];
      sum_in[i] += gradient[i];
    }
    EXPECT_TRUE(errors.apply("w", gradient, compress, out).ok());
    if (!feedback) {
      errors.reset("w");
    }
    std::transform(sum_out.begin(), sum_out.end(), out.begin(), sum_out.begin(), std::plus<>());
  }
  return nmse(sum_out, sum_in);
}

TEST(ErrorFeedback, SumsOfABiasedCompressorTrackTheSumsOfItsInputs) {
  EXPECT_LT(drift(halve, 100, true), 1e-3);
  EXPECT_GT(drift(halve, 100, false), 0.2);
}

TEST(ErrorFeedback, TopKCatchesUpWithWhatItLeftOut) {
  const auto made = reference::make_reference_codec("topk-1");
  ASSERT_TRUE(made.ok());
  const auto& codec = *made.value();
  const auto compress = [&codec](Span in, OutSpan out) {
    return codec.decode(codec.encode(in, 0), in.size(), 0, out);
  };
  const double with_feedback = drift(compress, 1000, true);
  const double without = drift(compress, 1000, false);
  EXPECT_LT(with_feedback, 0.05);
  EXPECT_GT(without, 0.5);
}

TEST(ErrorFeedback, TheResidualIsInputMinusOutput) {
  ErrorFeedback errors;
  const std::vector<float> gradient = {4.0F, -8.0F};
  std::vector<float> out(2);
  ASSERT_TRUE(errors.apply("w", gradient, halve, out).ok());
  EXPECT_EQ(out, (std::vector<float>{2.0F, -4.0F}));
  EXPECT_DOUBLE_EQ(errors.residual_norm("w"), std::sqrt(20.0));
  ASSERT_TRUE(errors.apply("w", gradient, halve, out).ok());
  EXPECT_EQ(out, (std::vector<float>{3.0F, -6.0F}));
}

TEST(ErrorFeedback, TheOutputMayBeTheGradientsOwnMemory) {
  ErrorFeedback errors;
  std::vector<float> gradient = {4.0F, -8.0F};
  ASSERT_TRUE(errors.apply("w", gradient, halve, gradient).ok());
  EXPECT_EQ(gradient, (std::vector<float>{2.0F, -4.0F}));
  EXPECT_DOUBLE_EQ(errors.residual_norm("w"), std::sqrt(20.0));
}

TEST(ErrorFeedback, TensorsDoNotMix) {
  ErrorFeedback errors;
  std::vector<float> out(1);
  ASSERT_TRUE(errors.apply("a", std::vector<float>{2.0F}, keep_nothing, out).ok());
  ASSERT_TRUE(errors.apply("b", std::vector<float>{5.0F}, keep_all, out).ok());
  EXPECT_EQ(out[0], 5.0F);
  EXPECT_EQ(errors.residual_norm("a"), 2.0);
  EXPECT_EQ(errors.residual_norm("b"), 0.0);
  EXPECT_EQ(errors.tensor_count(), 2U);
}

TEST(ErrorFeedback, AChangedLengthIsAnErrorThatChangesNothing) {
  ErrorFeedback errors;
  std::vector<float> out(2, 7.0F);
  ASSERT_TRUE(errors.apply("w", std::vector<float>{3.0F, 4.0F}, keep_nothing, out).ok());
  std::vector<float> other(3, 7.0F);
  const base::Status status =
      errors.apply("w", std::vector<float>{1.0F, 1.0F, 1.0F}, keep_all, other);
  EXPECT_EQ(status.code(), base::StatusCode::kInvalidArgument);
  EXPECT_EQ(other, std::vector<float>(3, 7.0F));
  EXPECT_EQ(errors.residual_norm("w"), 5.0);
  errors.reset("w");
  EXPECT_TRUE(errors.apply("w", std::vector<float>{1.0F, 1.0F, 1.0F}, keep_all, other).ok());
}

TEST(ErrorFeedback, AnOutputOfAnotherLengthOrNoCompressorIsAnError) {
  ErrorFeedback errors;
  std::vector<float> out(2);
  EXPECT_FALSE(errors.apply("w", std::vector<float>{1.0F}, keep_all, out).ok());
  EXPECT_FALSE(errors.apply("w", std::vector<float>{1.0F, 2.0F}, nullptr, out).ok());
  EXPECT_EQ(errors.tensor_count(), 0U);
}

TEST(ErrorFeedback, ResetForgetsTheTensor) {
  ErrorFeedback errors;
  std::vector<float> out(1);
  ASSERT_TRUE(errors.apply("w", std::vector<float>{2.0F}, keep_nothing, out).ok());
  errors.reset("w");
  errors.reset("never seen");
  EXPECT_EQ(errors.residual_norm("w"), 0.0);
  EXPECT_EQ(errors.tensor_count(), 0U);
  ASSERT_TRUE(errors.apply("w", std::vector<float>{1.0F}, keep_all, out).ok());
  EXPECT_EQ(out[0], 1.0F);
}

TEST(ErrorFeedback, ANonFiniteGradientClearsTheResidualInsteadOfPoisoningIt) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const auto& compress : {halve, keep_all, keep_nothing}) {
      ErrorFeedback errors;
      std::vector<float> out(2);
      ASSERT_TRUE(errors.apply("w", std::vector<float>{1.0F, 2.0F}, halve, out).ok());
      ASSERT_TRUE(errors.apply("w", std::vector<float>{bad, 2.0F}, compress, out).ok());
      EXPECT_EQ(errors.residual_norm("w"), 0.0);
      ASSERT_TRUE(errors.apply("w", std::vector<float>{1.0F, 2.0F}, keep_all, out).ok());
      EXPECT_EQ(out, (std::vector<float>{1.0F, 2.0F}));
    }
  }
}

TEST(ErrorFeedback, ANonFiniteGradientReachesTheCompressor) {
  ErrorFeedback errors;
  std::vector<float> out(2);
  ASSERT_TRUE(errors.apply("w", std::vector<float>{kNan, 2.0F}, keep_all, out).ok());
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[1], 2.0F);
}

TEST(ErrorFeedback, AnOverflowingCompressorClearsTheResidualToo) {
  const auto overflow = [](Span /*in*/, OutSpan out) {
    std::fill(out.begin(), out.end(), kInfinity);
    return base::Status();
  };
  ErrorFeedback errors;
  std::vector<float> out(1);
  ASSERT_TRUE(errors.apply("w", std::vector<float>{1e6F}, overflow, out).ok());
  EXPECT_EQ(errors.residual_norm("w"), 0.0);
}

TEST(ErrorFeedback, AFailedCompressionSendsNothingAndOwesEverything) {
  ErrorFeedback errors;
  std::vector<float> out(1);
  EXPECT_EQ(errors.apply("w", std::vector<float>{3.0F}, fail, out).code(),
            base::StatusCode::kUnavailable);
  ASSERT_TRUE(errors.apply("w", std::vector<float>{4.0F}, keep_all, out).ok());
  EXPECT_EQ(out[0], 7.0F);
}

TEST(ErrorFeedback, EmptyTensorsAreFine) {
  ErrorFeedback errors;
  EXPECT_TRUE(errors.apply("w", {}, keep_all, {}).ok());
  EXPECT_EQ(errors.residual_norm("w"), 0.0);
}

TEST(ErrorFeedback, OneTensorTooManyIsRefusedUntilAnotherIsReset) {
  ErrorFeedback errors;
  const std::vector<float> gradient = {1.0F};
  std::vector<float> out(1);
  for (std::size_t i = 0; i < ErrorFeedback::kMaxTensors; ++i) {
    ASSERT_TRUE(errors.apply(std::to_string(i), gradient, keep_all, out).ok());
  }
  EXPECT_EQ(errors.apply("more", gradient, keep_all, out).code(), base::StatusCode::kLimitExceeded);
  EXPECT_TRUE(errors.apply("5", gradient, keep_all, out).ok());
  errors.reset("5");
  EXPECT_TRUE(errors.apply("more", gradient, keep_all, out).ok());
}

}  // namespace
}  // namespace spillway::codec
