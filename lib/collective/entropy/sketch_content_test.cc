// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <deque>

#include "codec/sketch/sketch_testing.h"
#include "collective/entropy/sketch_content.h"

namespace spillway::collective {

namespace {

namespace sketch = codec::sketch;

constexpr std::size_t kFoldLength = 20'000;
constexpr std::uint16_t kFoldRanks = 3;
using Numbers = std::vector<std::int32_t>;

// Numbers of every rank: some that occur in all steps, and so many new ones.
std::vector<Numbers> sparse_parts(std::uint64_t step, std::size_t fresh) {
  std::vector<Numbers> parts;
  for (std::uint64_t rank = 0; rank < kFoldRanks; ++rank) {
    sketch::Support support = sketch::random_support(kFoldLength, kFoldLength / 20, 1);
    support |= sketch::random_support(kFoldLength, fresh, 100 * step + rank + 2);
    parts.push_back(sketch::values_on(support, 1000 * step + rank, 127));
  }
  return parts;
}

Numbers sum_of_rows(const std::vector<Numbers>& rows) {
  Numbers sum(rows[0].size());
  for (const Numbers& row : rows) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += row[i];
    }
  }
  return sum;
}

sketch::SparseCode learned_code(std::size_t fresh) {
  sketch::SparseCode code =
      sketch::SparseCode::make(kFoldLength, {.contributors = kFoldRanks}).value();
  for (std::uint64_t step = 0; step < 3; ++step) {
    code.advance({sum_of_rows(sparse_parts(step, fresh)), sketch::Support(kFoldLength)});
  }
  return code;
}

TEST(SketchFold, SumsOfFoldsAreFoldsOfSums) {
  sketch::SparseCode code =
      sketch::SparseCode::make(kFoldLength, {.contributors = kFoldRanks}).value();
  for (std::uint64_t step = 0; step < 6; ++step) {
    const SketchFold fold(code, step);
    const auto [dense, cells, counts] = fold.lengths();
    EXPECT_EQ(dense + counts, kFoldLength);
    EXPECT_LT(fold.length(), 2 * kFoldLength);
    EXPECT_EQ(fold.is_dense(), step == 0);
    const std::vector<Numbers> parts = sparse_parts(step, 40);
    std::vector<Numbers> folds;
    for (const Numbers& part : parts) {
      folds.push_back(fold.fold(part).value());
    }
    const auto sum = fold.unfold(sum_of_rows(folds));
    ASSERT_TRUE(sum.ok()) << sum.status().message();
    EXPECT_EQ(sum->unrecovered.count(), 0U);
    EXPECT_EQ(sum->values, sum_of_rows(parts));
    code.advance(*sum);
  }
}

TEST(SketchFold, ADenseStepIsTheNumbersThemselves) {
  const sketch::SparseCode code = sketch::SparseCode::make(kFoldLength, {}).value();
  const Numbers numbers = sparse_parts(1, 40)[0];
  EXPECT_EQ(SketchFold(code, 1).fold(numbers).value(), numbers);
}

TEST(SketchFold, WhatNoRanksFoldedIsAnError) {
  const sketch::SparseCode code = learned_code(40);
  const SketchFold fold(code, 7);
  Numbers folded = fold.fold(sparse_parts(7, 40)[0]).value();
  ++folded[fold.lengths()[0]];  // a cell
  EXPECT_FALSE(fold.unfold(folded).ok());
}

// One rank of an operation, as far as its content is concerned.
struct FoldedRank {
  FoldedRank(const Numbers& numbers, std::uint16_t rank,
             std::shared_ptr<const sketch::SparseCode> code)
      : values(numbers.begin(), numbers.end()),
        operation(operation_on(values, output)),
        tensor{.operation = operation,
               .group = {rank, kFoldRanks},
               .grid = BlockGrid(kFoldLength, kFoldRanks),
               .residual = residual,
               .code = NumberCode(8, 127.0F)},
        content(tensor, std::move(code), 11) {}

  static Operation operation_on(const std::vector<float>& values, std::vector<float>& output) {
    Operation operation;
    operation.count = values.size();
    operation.input = values.data();
    operation.output = output.data();
    operation.tolerance = Tolerance{.codec = Codec::kSketch, .feedback_tensor = 1};
    return operation;
  }

  std::vector<float> values;
  std::vector<float> output = std::vector<float>(kFoldLength);
  std::vector<float> residual = std::vector<float>(kFoldLength);
  Operation operation;
  TensorNumbers tensor;
  SketchContent content;
};

TEST(SketchContent, WhatIsNotRecoveredIsOwedByEveryRank) {
  const auto code = std::make_shared<const sketch::SparseCode>(learned_code(5));
  const std::vector<Numbers> parts = sparse_parts(9, 700);
  std::deque<FoldedRank> ranks;
  Numbers sums;
  for (std::uint16_t rank = 0; rank < kFoldRanks; ++rank) {
    FoldedRank& own = ranks.emplace_back(parts[rank], rank, code);
    ASSERT_TRUE(own.content.has_fold());
    own.content.fold();
    const std::span<const std::int32_t> folded = own.content.numbers();
    sums.resize(folded.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += folded[i];
    }
  }
  std::uint32_t remembered = 0;
  for (FoldedRank& own : ranks) {
    std::copy(sums.begin(), sums.end(), own.content.numbers().begin());
    ASSERT_TRUE(own.content.unfold().ok());
    TensorCodes codes;
    EntropyDelivery report;
    own.content.conclude(codes, report);
    EXPECT_GT(report.sketch.unrecovered, 500U);
    EXPECT_GE(report.sketch.misses, report.sketch.unrecovered);
    EXPECT_EQ(report.sketch.predicted, code->predicted().count());
    EXPECT_NE(codes.sketch.fingerprint, code->fingerprint());
    EXPECT_TRUE(remembered == 0 || remembered == codes.shared_hash());
    remembered = codes.shared_hash();
  }
  // All that went in is in the sum or owed.
  for (std::size_t i = 0; i < kFoldLength; ++i) {
    float in = 0.0F;
    float owed = 0.0F;
    for (const FoldedRank& own : ranks) {
      in += own.values[i];
      owed += own.residual[i];
    }
    ASSERT_NEAR(in, ranks[0].output[i] + owed, 1e-3) << i;
    ASSERT_EQ(ranks[0].output[i], ranks[2].output[i]);
  }
}

}  // namespace

}  // namespace spillway::collective
