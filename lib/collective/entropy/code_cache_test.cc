// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "codec/sample_data.h"
#include "collective/entropy/code_cache.h"
#include "collective/entropy/entropy_piece.h"

namespace spillway::collective {

namespace {

namespace entropy = codec::entropy;

constexpr CodeUse kUse{.count = 5000, .precision = 8};

entropy::Histogram counts_of(double sigma, std::uint64_t seed) {
  entropy::Histogram histogram(alphabet_of(127, 1, 5000));
  histogram.add(std::span<const std::int32_t>(entropy::gaussian_integers(5000, sigma, seed)));
  return histogram;
}

using LinkCounts = std::map<LinkStep, entropy::Histogram>;

LinkTables tables_of(const LinkCounts& counts) {
  LinkTables tables;
  for (const auto& [link, histogram] : counts) {
    tables.emplace(link, entropy::ProbabilityTable::of_counts(histogram));
  }
  return tables;
}

TensorCodes codes_with(const LinkCounts& sent, const LinkCounts& received,
                       std::uint64_t sequence = 1) {
  TensorCodes codes{.use = kUse, .sequence = sequence, .largest = 2.0F};
  codes.sent = tables_of(sent);
  codes.received = tables_of(received);
  codes.sums.emplace(LinkStep{0, 3, 0}, entropy::ProbabilityTable::of_counts(counts_of(9.0, 99)));
  return codes;
}

// The hello that the holder of `codes` sends to rank `to`.
EntropyHello hello_of(const TensorCodes& codes, std::uint16_t to, float largest = 1.0F) {
  return {.largest = largest,
          .mean = 0.1F,
          .shared = codes.shared_hash(),
          .sent = hash_of(codes.sent, to),
          .received = hash_of(codes.received, to)};
}

TEST(CodeCache, KeepsTheLatestOfATensorAndItsUse) {
  CodeCache cache;
  EXPECT_EQ(cache.last(7, kUse), nullptr);
  cache.keep(7, codes_with({}, {}, 5));
  cache.keep(7, codes_with({}, {}, 4));
  ASSERT_NE(cache.last(7, kUse), nullptr);
  EXPECT_EQ(cache.last(7, kUse)->sequence, 5U);
  CodeUse other = kUse;
  other.precision = 7;
  EXPECT_EQ(cache.last(7, other), nullptr);
  cache.keep(0, codes_with({}, {}));
  EXPECT_EQ(cache.last(0, kUse), nullptr);
}

TEST(CodeCache, IsBounded) {
  CodeCache cache;
  for (std::uint64_t tensor = 1; tensor <= CodeCache::kMaxTensors + 1; ++tensor) {
    cache.keep(tensor, {.use = kUse, .sequence = tensor});
  }
  EXPECT_EQ(cache.last(1, kUse), nullptr);
  EXPECT_NE(cache.last(2, kUse), nullptr);
  EXPECT_NE(cache.last(CodeCache::kMaxTensors + 1, kUse), nullptr);
}

TEST(CodeCache, HashesTellStepsAndPeersApart) {
  const LinkTables one = tables_of({{{1, 1, 0}, counts_of(5.0, 1)}});
  const LinkTables other_step = tables_of({{{1, 2, 0}, counts_of(5.0, 1)}});
  EXPECT_NE(hash_of(one, 1), hash_of(other_step, 1));
  EXPECT_EQ(hash_of(one, 2), 0U);
  EXPECT_NE(hash_of(one, 1), 0U);
}

TEST(CodeCache, SharedHashesTellCosts) {
  TensorCodes codes = codes_with({}, {});
  codes.costs = {100, 200};
  const std::uint32_t hash = codes.shared_hash();
  codes.costs[1] = 201;
  EXPECT_NE(codes.shared_hash(), hash);
}

TEST(CodeCache, CostsFollowSlowly) {
  EXPECT_EQ(next_cost(100, 200), 125U);
  EXPECT_EQ(next_cost(200, 100), 175U);
  EXPECT_EQ(next_cost(0, 3), 0U);
}

TEST(EntropyHello, SurvivesItsBytes) {
  const EntropyHello hello{1.5F, 0.25F, 11, 22, 33};
  EXPECT_EQ(read_hello(write_hello(hello)), hello);
}

TEST(EntropyHello, WhoRemembersNothingCodesByMeasures) {
  const std::vector<EntropyHello> hellos(3, {.largest = 2.0F, .mean = 0.5F});
  const EntropyAgreement agreement = agree_on_codes(hellos, hellos, nullptr, true);
  EXPECT_EQ(agreement.sums, TableSource::kParametric);
  EXPECT_EQ(agreement.sent[1], TableSource::kParametric);
  EXPECT_FALSE(agreement.is_predicted);
  EXPECT_EQ(agreement.scale, 2.0F);
}

TEST(EntropyHello, ThePredictionCountsOnlyWhereAllRemember) {
  const TensorCodes codes = codes_with({}, {});
  std::vector<EntropyHello> hellos(3, hello_of(codes, 1));
  EntropyAgreement agreement = agree_on_codes(hellos, hellos, &codes, true);
  EXPECT_TRUE(agreement.is_predicted);
  EXPECT_EQ(agreement.scale, 2.5F);
  hellos[2].shared = 0;
  agreement = agree_on_codes(hellos, hellos, &codes, true);
  EXPECT_FALSE(agreement.is_predicted);
  EXPECT_EQ(agreement.sums, TableSource::kInline);
  hellos[2] = hellos[0];
  hellos[1].largest = std::nanf("");
  agreement = agree_on_codes(hellos, hellos, &codes, true);
  EXPECT_TRUE(std::isnan(agreement.scale));
}

TEST(EntropyHello, ScalesOfSumsAddBySquares) {
  const std::vector<float> means = {3.0F, 4.0F};
  EXPECT_EQ(parametric_scale(means, 1.0), 5U * 256);
  EXPECT_EQ(parametric_scale(std::vector<float>{std::nanf(""), -1.0F}, 0.0), 1U);
}

// One piece of two ranks: rank 1 sends to rank 0, which has the sum.
struct Exchange {
  explicit Exchange(const std::vector<std::int32_t>& values, ReduceOp op = ReduceOp::kSum)
      : output{std::vector<float>(values.size()), std::vector<float>(values.size())},
        operations{operation_of(0, op), operation_of(1, op)},
        tensors{tensor_of(0, values), tensor_of(1, values)} {}

  PieceCoder coder(std::uint16_t rank) {
    return {.group = {rank, 2}, .sequence = 8, .content = contents[rank], .coder_pool = coder_pool};
  }
  std::vector<std::int32_t>& numbers(std::size_t rank) { return tensors[rank].numbers; }
  const BlockGrid& grid() const { return tensors[0].grid; }

  std::array<std::vector<float>, 2> output;
  std::array<Operation, 2> operations;
  std::array<TensorNumbers, 2> tensors;
  std::array<PlainContent, 2> contents = {PlainContent(tensors[0]), PlainContent(tensors[1])};
  CoderPool coder_pool;

 private:
  Operation operation_of(std::size_t rank, ReduceOp op) {
    Operation operation;
    operation.count = output[rank].size();
    operation.op = op;
    operation.output = output[rank].data();
    return operation;
  }
  TensorNumbers tensor_of(std::uint16_t rank, const std::vector<std::int32_t>& values) {
    return {.operation = operations[rank],
            .group = {rank, 2},
            .grid = BlockGrid(values.size(), 2),
            .residual = {},
            .numbers = values,
            .code = NumberCode(8, 127.0F),
            .is_rounded = true};
  }
};

// One count is flipped at one end. It is noticed, costs one table, changes no value, and is gone
// the next time.
TEST(EntropyPiece, AFlippedCountCostsOneTableAndChangesNothing) {
  const LinkCounts truth = {{{0, 1, 0}, counts_of(6.0, 1)}, {{2, 1, 0}, counts_of(6.0, 2)}};
  LinkCounts flipped = {{{1, 1, 0}, counts_of(6.0, 1)}};
  flipped.begin()->second.add_symbol(3, 64);
  const TensorCodes sender = codes_with(truth, {});
  const TensorCodes receiver = codes_with({}, flipped);
  const std::vector<EntropyHello> told = {hello_of(sender, 0), hello_of(sender, 1),
                                          hello_of(sender, 2)};
  std::vector<EntropyHello> heard = {hello_of(receiver, 1), told[1], told[2]};
  heard[2].received = told[2].sent;
  const EntropyAgreement agreement = agree_on_codes(told, heard, &sender, false);
  EXPECT_EQ(agreement.sent[0], TableSource::kInline);
  EXPECT_EQ(agreement.sent[2], TableSource::kLast);
  EXPECT_EQ(agreement.sums, TableSource::kLast);

  const std::vector<std::int32_t> values = entropy::gaussian_integers(5000, 6.0, 3);
  Exchange exchange(values);
  const PieceCoder from = exchange.coder(1);
  const PieceCoder to = exchange.coder(0);
  const BlockRun all{0, 1, exchange.grid().blocks()};
  EntropyPiece part(from, {0, 0, all, values.size()}, route_of(Algorithm::kDirect, {1, 2}, 0), {});
  EntropyPiece sum(to, {0, 0, all, values.size()}, route_of(Algorithm::kDirect, {0, 2}, 0), {});
  const EncodedPart message = part.encode_part().value();
  EXPECT_TRUE(message.has_table);
  ASSERT_TRUE(sum.add_part(1, message.bytes).ok());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(exchange.numbers(0)[i], 2 * values[i]);
  }
  EXPECT_EQ(part.learned().sent, sum.learned().received.at(1));
}

TEST(EntropyPiece, AMessageByAnotherTableIsAnErrorAndNotDecoded) {
  const std::vector<std::int32_t> values = entropy::gaussian_integers(5000, 6.0, 3);
  Exchange exchange(values);
  const PieceCoder from = exchange.coder(1);
  const PieceCoder to = exchange.coder(0);
  const PieceTables ours{.sent = entropy::ProbabilityTable::of_counts(counts_of(6.0, 1))};
  const PieceTables theirs{
      .received = {{1, entropy::ProbabilityTable::of_counts(counts_of(6.0, 2))}}};
  const BlockRun all{0, 1, exchange.grid().blocks()};
  EntropyPiece part(from, {0, 0, all, values.size()}, route_of(Algorithm::kDirect, {1, 2}, 0),
                    ours);
  EntropyPiece sum(to, {0, 0, all, values.size()}, route_of(Algorithm::kDirect, {0, 2}, 0), theirs);
  EncodedPart message = part.encode_part().value();
  EXPECT_FALSE(message.has_table);
  EXPECT_EQ(sum.add_part(1, message.bytes).code(), base::StatusCode::kMismatch);
  EXPECT_EQ(exchange.numbers(0), values);
  message.bytes[0] ^= 1;  // of another operation
  EXPECT_EQ(sum.add_part(1, message.bytes).code(), base::StatusCode::kMismatch);
  message.bytes.resize(10);
  EXPECT_EQ(sum.add_part(1, message.bytes).code(), base::StatusCode::kMalformed);
}

TEST(EntropyPiece, ATableThatHasAgedIsReplacedAtOnce) {
  const std::vector<std::int32_t> values = entropy::gaussian_integers(50'000, 1.0, 3);
  Exchange exchange(values);
  const PieceCoder from = exchange.coder(1);
  const PieceTables aged{.sent = entropy::ProbabilityTable::of_counts(counts_of(30.0, 1))};
  const BlockRun all{0, 1, exchange.grid().blocks()};
  EntropyPiece part(from, {0, 0, all, values.size()}, route_of(Algorithm::kDirect, {1, 2}, 0),
                    aged);
  const EncodedPart message = part.encode_part().value();
  EXPECT_TRUE(message.has_table);
  EXPECT_NE(part.learned().sent, aged.sent);
}

TEST(EntropyPiece, LongTensorsHaveSymbolsForEverySum) {
  EXPECT_EQ(alphabet_of(127, 1, 1), entropy::Alphabet::bytes());
  EXPECT_EQ(alphabet_of(127, 4, 1000), entropy::Alphabet::ranges());
  EXPECT_EQ(alphabet_of(127, 4, 100'000), entropy::Alphabet::direct(1018).value());
  EXPECT_EQ(alphabet_of(32'767, 2, 1UL << 30), entropy::Alphabet::ranges());
}

TEST(EntropyPiece, SumsBecomeTheSameValuesEverywhere) {
  std::vector<std::int32_t> values = entropy::gaussian_integers(20'000, 6.0, 3, 2);
  Exchange exchange(values, ReduceOp::kAverage);
  const PieceCoder first = exchange.coder(0);
  const PieceCoder second = exchange.coder(1);
  exchange.numbers(1).assign(values.size(), 0);
  const BlockRun striped{1, 2, exchange.grid().blocks() / 2};
  const ChunkPiece place{0, 0, striped, exchange.grid().values_of(striped)};
  EntropyPiece owner(first, place, route_of(Algorithm::kDirect, {0, 2}, 0), {});
  EntropyPiece other(second, place, route_of(Algorithm::kDirect, {1, 2}, 0), {});
  const EncodedPart message = owner.encode_sum().value();
  ASSERT_TRUE(other.take_sum(message.bytes).ok());
  EXPECT_EQ(exchange.output[0], exchange.output[1]);
  const std::size_t at = exchange.grid().extent_of(1).first;
  EXPECT_EQ(exchange.output[1][at], static_cast<float>(values[at]) / 2);
  EXPECT_EQ(owner.learned().sum, other.learned().sum);
}

}  // namespace

}  // namespace spillway::collective
