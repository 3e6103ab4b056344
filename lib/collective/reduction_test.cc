// SPDX-License-Identifier: Apache-2.0
//
// Reductions against a tree written element by element, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/random.h"
#include "codec/reference/reference_codec.h"
#include "collective/reduction.h"

namespace spillway::collective {

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfiniteFloat = std::numeric_limits<float>::infinity();

// ---- The reference: how elements are read and written

struct PlainHalf {
  std::uint16_t bits;
};
struct PlainBfloat {
  std::uint16_t bits;
};

float read(PlainHalf stored) {
  return codec::reference::fp16_to_float(stored.bits);
}
float read(PlainBfloat stored) {
  return codec::reference::bf16_to_float(stored.bits);
}
template <typename T>
T read(T stored) {
  return stored;
}

void write(float value, PlainHalf& stored) {
  stored.bits = std::isnan(value) ? 0x7E00 : codec::reference::float_to_fp16(value);
}
void write(float value, PlainBfloat& stored) {
  stored.bits = std::isnan(value) ? 0x7FC0 : codec::reference::float_to_bf16(value);
}
template <typename T>
void write(T value, T& stored) {
  stored = value;
  if constexpr (std::is_floating_point_v<T>) {
    stored = std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
  }
}

// ---- The reference: folding

template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::isnan(value);
  }
  return false;
}

template <typename T>
T plain_sum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a + b;
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
}

template <typename T>
T plain_product(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a * b;
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  }
}

template <typename T>
T plain_bits(ReduceOp op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const auto bits = op == ReduceOp::kBitAnd ? a & b : op == ReduceOp::kBitOr ? a | b : a ^ b;
    return static_cast<T>(bits);
  }
  return a;
}

template <typename T>
T plain_fold(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return plain_sum(a, b);
    case ReduceOp::kProduct:
      return plain_product(a, b);
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return plain_bits(op, a, b);
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      break;
  }
  if (is_nan(a) || is_nan(b)) {
    return std::numeric_limits<T>::quiet_NaN();
  }
  return op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
}

// The tree over the elements from `first` on, without rounding its top.
template <typename Stored, typename Value>
Value plain_tree(ReduceOp op, std::span<const Value> elements) {
  if (elements.size() == 1) {
    return elements[0];
  }
  const auto half = [&](std::span<const Value> part) {
    const Value sum = plain_tree<Stored, Value>(op, part);
    Stored stored;
    write(sum, stored);
    return read(stored);
  };
  std::size_t left = 1;
  while (2 * left < elements.size()) {
    left *= 2;
  }
  return plain_fold(op, half(elements.first(left)), half(elements.subspan(left)));
}

template <typename Stored>
Bytes plain_reduce(ReduceOp op, const std::vector<const std::uint8_t*>& sources, std::size_t count,
                   std::size_t average_over) {
  Bytes result(count * sizeof(Stored));
  for (std::size_t i = 0; i < count; ++i) {
    const auto element = [&](const std::uint8_t* source) {
      Stored stored;
      std::memcpy(&stored, source + i * sizeof(Stored), sizeof(Stored));
      return read(stored);
    };
    std::vector<decltype(element(sources[0]))> elements;
    for (const std::uint8_t* source : sources) {
      elements.push_back(element(source));
    }
    auto value = plain_tree<Stored, decltype(element(sources[0]))>(op, elements);
    if (op == ReduceOp::kAverage && average_over > 0) {
      value = value / static_cast<decltype(value)>(average_over);
    }
    Stored stored;
    write(value, stored);
    std::memcpy(result.data() + i * sizeof(Stored), &stored, sizeof(Stored));
  }
  return result;
}

Bytes plain_reduce(DataType type, ReduceOp op, const std::vector<const std::uint8_t*>& sources,
                   std::size_t count, std::size_t average_over) {
  switch (type) {
    case DataType::kFloat32:
      return plain_reduce<float>(op, sources, count, average_over);
    case DataType::kFloat64:
      return plain_reduce<double>(op, sources, count, average_over);
    case DataType::kFloat16:
      return plain_reduce<PlainHalf>(op, sources, count, average_over);
    case DataType::kBfloat16:
      return plain_reduce<PlainBfloat>(op, sources, count, average_over);
    case DataType::kInt32:
      return plain_reduce<std::int32_t>(op, sources, count, average_over);
    case DataType::kInt64:
      return plain_reduce<std::int64_t>(op, sources, count, average_over);
    case DataType::kInt8:
      return plain_reduce<std::int8_t>(op, sources, count, average_over);
    case DataType::kUint8:
      return plain_reduce<std::uint8_t>(op, sources, count, average_over);
  }
  return {};
}

// ---- Elements to try

template <typename Stored, typename Value>
void append(Bytes& bytes, Value value) {
  Stored stored;
  write(value, stored);
  const auto* first = reinterpret_cast<const std::uint8_t*>(&stored);
  bytes.insert(bytes.end(), first, first + sizeof(Stored));
}

// Mostly ordinary numbers: the largest exponent dominates sums of random bits.
void append_ordinary(DataType type, double value, Bytes& bytes) {
  switch (type) {
    case DataType::kFloat32:
      return append<float>(bytes, static_cast<float>(value));
    case DataType::kFloat64:
      return append<double>(bytes, value);
    case DataType::kFloat16:
      return append<PlainHalf>(bytes, static_cast<float>(value));
    case DataType::kBfloat16:
      return append<PlainBfloat>(bytes, static_cast<float>(value));
    case DataType::kInt32:
      return append<std::int32_t>(bytes, static_cast<std::int32_t>(value * 1000));
    case DataType::kInt64:
      return append<std::int64_t>(bytes, static_cast<std::int64_t>(value * 1000));
    case DataType::kInt8:
    case DataType::kUint8:  // the same bits
      return append<std::uint8_t>(bytes, static_cast<std::uint8_t>(std::lround(value * 50)));
  }
}

Bytes some_elements(DataType type, std::size_t count, std::uint64_t seed) {
  base::RandomSequence random(seed);
  Bytes bytes;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t kind = random.next_below(8);
    if (kind == 0) {  // any bits: NaNs of all sorts, denormals, integers that overflow
      for (std::size_t k = 0; k < element_size(type); ++k) {
        bytes.push_back(static_cast<std::uint8_t>(random.next_word()));
      }
    } else if (kind == 1) {
      constexpr std::array<double, 4> kSpecial{0.0, -0.0, 3e4, -3e4};
      append_ordinary(type, kSpecial[random.next_below(kSpecial.size())], bytes);
    } else {
      append_ordinary(type, random.next_gaussian(), bytes);
    }
  }
  return bytes;
}

// ---- One reduction among guard bytes that must stay as they are

constexpr std::uint8_t kBed = 0xA5;
constexpr std::size_t kMargin = 64;
constexpr std::size_t kApart = SIZE_MAX;  // the target is none of the sources

struct ReductionCase {
  DataType type{};
  ReduceOp op{};
  std::size_t sources{};
  std::size_t count{};
  std::size_t misaligned{};
  std::size_t in_place{};
  std::size_t average_over{};
};

std::string describe(const ReductionCase& tried) {
  return std::string(data_type_name(tried.type)) + " " + reduce_op_name(tried.op) + " of " +
         std::to_string(tried.sources) + " sources, " + std::to_string(tried.count) +
         " elements, off by " + std::to_string(tried.misaligned) + ", in place of " +
         (tried.in_place == kApart ? "none" : std::to_string(tried.in_place)) + ", over " +
         std::to_string(tried.average_over);
}

Bytes bedded(const Bytes& elements, std::size_t offset) {
  Bytes bed(kMargin + offset + elements.size() + kMargin, kBed);
  std::copy(elements.begin(), elements.end(), bed.begin() + kMargin + offset);
  return bed;
}

void expect_as_reference(const ReductionCase& tried) {
  if (!has_reduction(tried.type, tried.op)) {
    return;
  }
  std::vector<Bytes> beds;
  std::vector<const std::uint8_t*> sources;
  for (std::size_t k = 0; k < tried.sources; ++k) {
    const std::size_t offset = tried.misaligned * (k + 1) % kMargin;  // not all misaligned alike
    beds.push_back(bedded(some_elements(tried.type, tried.count, 100 * tried.count + k), offset));
    sources.push_back(beds.back().data() + kMargin + offset);
  }
  const Bytes expected =
      plain_reduce(tried.type, tried.op, sources, tried.count, tried.average_over);
  beds.push_back(bedded(Bytes(expected.size()), tried.misaligned));

  const bool apart = tried.in_place == kApart;
  std::vector<Bytes> expected_beds = beds;
  const std::size_t changed = apart ? tried.sources : tried.in_place;
  const std::size_t offset =
      kMargin + tried.misaligned * (apart ? 1 : tried.in_place + 1) % kMargin;
  std::copy(expected.begin(), expected.end(), expected_beds[changed].begin() + offset);

  reduce(tried.type, tried.op, sources, tried.count, beds[changed].data() + offset,
         tried.average_over);
  EXPECT_TRUE(beds == expected_beds) << describe(tried);
}

class ReductionOfType : public testing::TestWithParam<std::size_t> {
 protected:
  DataType type() const { return static_cast<DataType>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Types, ReductionOfType, testing::Range(std::size_t{0}, kDataTypes),
                         [](const auto& tested) {
                           return data_type_name(static_cast<DataType>(tested.param));
                         });

TEST_P(ReductionOfType, IsTheTreeInPairs) {
  for (std::size_t op = 0; op < kReduceOps; ++op) {
    for (const std::size_t sources : {1, 2, 3, 4, 5, 7, 11}) {
      for (const std::size_t count : {0, 1, 7, 31, 33, 1023, 2051}) {
        for (const std::size_t misaligned : {0, 1, 3}) {
          for (const std::size_t in_place : {kApart, std::size_t{0}, sources - 1}) {
            const std::size_t average_over = misaligned;  // 0, 1 and 3 serve for both
            expect_as_reference({type(), static_cast<ReduceOp>(op), sources, count, misaligned,
                                 in_place, average_over});
          }
        }
      }
    }
  }
}

TEST_P(ReductionOfType, AveragesOverAnyNumber) {
  for (const std::size_t over : {1, 2, 3, 4, 7, 8, 100, 1024, 4095, 1 << 24}) {
    expect_as_reference({type(), ReduceOp::kAverage, 3, 517, 0, kApart, over});
    expect_as_reference({type(), ReduceOp::kAverage, 6, 517, 0, kApart, over});
  }
}

TEST_P(ReductionOfType, TakesAsManySourcesAsItSays) {
  expect_as_reference({type(), ReduceOp::kSum, kMaxSources, 3, 0, kApart, 0});
}

TEST_P(ReductionOfType, OnlyAveragesAreDivided) {
  const Bytes a = some_elements(type(), 50, 1);
  const Bytes b = some_elements(type(), 50, 2);
  const std::array<const std::uint8_t*, 2> sources{a.data(), b.data()};
  Bytes with(a.size());
  Bytes without(a.size());
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
    reduce(type(), op, sources, 50, with.data(), 2);
    reduce(type(), op, sources, 50, without.data(), 0);
    EXPECT_TRUE(with == without) << reduce_op_name(op);
  }
  if (has_reduction(type(), ReduceOp::kAverage)) {
    reduce(type(), ReduceOp::kAverage, sources, 50, with.data(), 0);
    reduce(type(), ReduceOp::kSum, sources, 50, without.data(), 0);
    EXPECT_TRUE(with == without) << "an average over nothing is a sum";
  }
}

// ---- Single facts; each element is repeated, so that vector loops and remainders both see it

template <typename T>
T reduce_one(DataType type, ReduceOp op, const std::vector<T>& elements, std::size_t over = 0) {
  constexpr std::size_t kCopies = 71;
  std::vector<std::vector<T>> buffers;
  std::vector<const std::uint8_t*> sources;
  for (const T element : elements) {
    buffers.emplace_back(kCopies, element);
  }
  for (const std::vector<T>& buffer : buffers) {
    sources.push_back(reinterpret_cast<const std::uint8_t*>(buffer.data()));
  }
  std::vector<T> target(kCopies);
  reduce(type, op, sources, kCopies, reinterpret_cast<std::uint8_t*>(target.data()), over);
  for (const T& copy : target) {
    EXPECT_EQ(std::memcmp(&copy, &target[0], sizeof(T)), 0);
  }
  return target[0];
}

float reduce_floats(ReduceOp op, const std::vector<float>& elements, std::size_t over = 0) {
  return reduce_one(DataType::kFloat32, op, elements, over);
}

TEST(Reduction, SumsInPairs) {
  EXPECT_EQ(reduce_floats(ReduceOp::kSum, {1e8F, 1.0F, -1e8F}), 0.0F);
  EXPECT_EQ(reduce_floats(ReduceOp::kSum, {1e8F, -1e8F, 1.0F}), 1.0F);
  EXPECT_EQ(reduce_floats(ReduceOp::kSum, {1e8F, -1e8F, 1.0F, 1.0F, 1.0F, 1.0F}), 4.0F);
  // The ones meet before they meet the large numbers, but one, which is lost in them.
  EXPECT_EQ(reduce_floats(ReduceOp::kSum, {1e8F, 1.0F, 4.0F, 4.0F, 4.0F, -1e8F}), 8.0F);
}

// A plan that adds aligned runs of a power of two first, and then their sums, gets the same bits.
TEST_P(ReductionOfType, SumsOfAlignedRunsGiveTheSameBits) {
  constexpr std::size_t kCount = 301;
  for (std::size_t index = 0; index < kReduceOps; ++index) {
    const auto op = static_cast<ReduceOp>(index);
    for (std::size_t ranks = 2; has_reduction(type(), op) && ranks <= 20; ++ranks) {
      std::vector<Bytes> inputs;
      std::vector<const std::uint8_t*> sources;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        inputs.push_back(some_elements(type(), kCount, 1000 * ranks + rank));
      }
      for (const Bytes& input : inputs) {
        sources.push_back(input.data());
      }
      Bytes at_once(inputs[0].size());
      reduce(type(), op, sources, kCount, at_once.data(), ranks);
      for (std::size_t run = 2; run < ranks; run *= 2) {
        std::vector<Bytes> sums;
        for (std::size_t first = 0; first < ranks; first += run) {
          const std::size_t length = std::min(run, ranks - first);
          sums.emplace_back(inputs[0].size());
          reduce(type(), op, std::span(sources).subspan(first, length), kCount, sums.back().data(),
                 0);
        }
        std::vector<const std::uint8_t*> runs;
        for (const Bytes& sum : sums) {
          runs.push_back(sum.data());
        }
        Bytes by_runs(inputs[0].size());
        reduce(type(), op, runs, kCount, by_runs.data(), ranks);
        EXPECT_TRUE(by_runs == at_once) << reduce_op_name(op) << ", " << ranks << " in " << run;
      }
    }
  }
}

TEST(Reduction, EverySumOfHalvesIsRounded) {
  // 2048 + 1 is a tie in float16 and falls back to 2048, each time.
  const std::vector<std::uint16_t> halves{0x6800, 0x3C00, 0x3C00};
  EXPECT_EQ(reduce_one(DataType::kFloat16, ReduceOp::kSum, halves), 0x6800);
  // Likewise 256 + 1 in bfloat16; two ones meet first.
  const std::vector<std::uint16_t> bfloats{0x4380, 0x3F80, 0x3F80, 0x3F80};
  EXPECT_EQ(reduce_one(DataType::kBfloat16, ReduceOp::kSum, bfloats), 0x4381);
  // The last sum may leave the range of the type, if its average comes back.
  const std::vector<std::uint16_t> large{0x7BFF, 0x7BFF};
  EXPECT_EQ(reduce_one(DataType::kFloat16, ReduceOp::kAverage, large, 2), 0x7BFF);
  EXPECT_EQ(reduce_one(DataType::kFloat16, ReduceOp::kSum, large), 0x7C00);
}

TEST(Reduction, IntegerSumsWrapAround) {
  constexpr auto kMax32 = std::numeric_limits<std::int32_t>::max();
  constexpr auto kMin32 = std::numeric_limits<std::int32_t>::min();
  constexpr auto kMax64 = std::numeric_limits<std::int64_t>::max();
  constexpr auto kMin64 = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(reduce_one<std::int32_t>(DataType::kInt32, ReduceOp::kSum, {kMax32, 1}), kMin32);
  EXPECT_EQ(reduce_one<std::int32_t>(DataType::kInt32, ReduceOp::kSum, {kMin32, -1}), kMax32);
  EXPECT_EQ(reduce_one<std::int64_t>(DataType::kInt64, ReduceOp::kSum, {kMax64, 1}), kMin64);
  EXPECT_EQ(reduce_one<std::int64_t>(DataType::kInt64, ReduceOp::kSum, {kMin64, kMin64}), 0);
}

TEST(Reduction, BytesWrapAroundAsTheirTypeDoes) {
  EXPECT_EQ(reduce_one<std::int8_t>(DataType::kInt8, ReduceOp::kSum, {100, 100}), -56);
  EXPECT_EQ(reduce_one<std::uint8_t>(DataType::kUint8, ReduceOp::kSum, {200, 100}), 44);
  EXPECT_EQ(reduce_one<std::int8_t>(DataType::kInt8, ReduceOp::kProduct, {100, 100}), 16);
  EXPECT_EQ(reduce_one<std::uint8_t>(DataType::kUint8, ReduceOp::kProduct, {249, 5}), 221);
  // The same bits, read as one type and as the other.
  EXPECT_EQ(reduce_one<std::int8_t>(DataType::kInt8, ReduceOp::kMax, {-1, 1}), 1);
  EXPECT_EQ(reduce_one<std::uint8_t>(DataType::kUint8, ReduceOp::kMax, {0xFF, 1}), 0xFF);
}

TEST(Reduction, IntegerProductsWrapAround) {
  constexpr auto kMin64 = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(reduce_one<std::int32_t>(DataType::kInt32, ReduceOp::kProduct, {1 << 20, 1 << 12}), 0);
  EXPECT_EQ(reduce_one<std::int64_t>(DataType::kInt64, ReduceOp::kProduct, {kMin64, -1}), kMin64);
  EXPECT_EQ(reduce_one<std::int64_t>(DataType::kInt64, ReduceOp::kProduct, {-3, 4, -5}), 60);
}

TEST(Reduction, BitsOfIntegersMeet) {
  EXPECT_EQ(reduce_one<std::int32_t>(DataType::kInt32, ReduceOp::kBitAnd, {-2, 7, 14}), 6);
  EXPECT_EQ(reduce_one<std::int64_t>(DataType::kInt64, ReduceOp::kBitOr, {1, 4, -8}), -3);
  EXPECT_EQ(reduce_one<std::uint8_t>(DataType::kUint8, ReduceOp::kBitXor, {0xF0, 0xFF, 1}), 0x0E);
}

TEST(Reduction, EveryProductOfHalvesIsRounded) {
  // 200 * 400 leaves float16's range, and nothing brings it back.
  const std::vector<std::uint16_t> halves{0x5A40, 0x5E40, 0x3800};
  EXPECT_EQ(reduce_one(DataType::kFloat16, ReduceOp::kProduct, halves), kFloat16Infinity);
}

TEST(Reduction, IntegerAveragesTruncateTowardsZero) {
  EXPECT_EQ(reduce_one<std::int32_t>(DataType::kInt32, ReduceOp::kAverage, {-3, -4}, 2), -3);
  EXPECT_EQ(reduce_one<std::int32_t>(DataType::kInt32, ReduceOp::kAverage, {3, 4}, 2), 3);
  EXPECT_EQ(reduce_one<std::int64_t>(DataType::kInt64, ReduceOp::kAverage, {-1, 0, -1}, 3), 0);
  EXPECT_EQ(reduce_one<std::int64_t>(DataType::kInt64, ReduceOp::kAverage, {-5, -5, -1}, 3), -3);
}

TEST(Reduction, FloatAveragesAreDividedNotMultiplied) {
  const float by_reciprocal = 5.0F * (1.0F / 3.0F);
  ASSERT_NE(5.0F / 3.0F, by_reciprocal);
  EXPECT_EQ(reduce_floats(ReduceOp::kAverage, {2.0F, 3.0F}, 3), 5.0F / 3.0F);
  // A power of two, down among the denormals: a tie, to even.
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(reduce_floats(ReduceOp::kAverage, {2 * least, least}, 2), 2 * least);
  EXPECT_EQ(reduce_floats(ReduceOp::kAverage, {least}, 2), 0.0F);
}

TEST(Reduction, AnyNaNMakesTheOneQuietNaN) {
  const auto quiet = std::bit_cast<std::uint32_t>(kNaN);
  ASSERT_EQ(quiet, 0x7FC00000U);
  const auto odd = std::bit_cast<float>(0xFF812345U);  // negative, signalling, with a payload
  for (std::size_t index = 0; index < kReduceOps; ++index) {
    const auto op = static_cast<ReduceOp>(index);
    if (!has_reduction(DataType::kFloat32, op)) {
      continue;
    }
    for (const std::vector<float>& elements : {std::vector{odd},
                                               {odd, 1.0F},
                                               {1.0F, odd},
                                               {1.0F, odd, -2.0F},
                                               {odd, -odd, kInfiniteFloat}}) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(reduce_floats(op, elements, 2)), quiet)
          << reduce_op_name(op);
    }
  }
  const float cancelled = reduce_floats(ReduceOp::kSum, {kInfiniteFloat, -kInfiniteFloat});
  EXPECT_EQ(std::bit_cast<std::uint32_t>(cancelled), quiet);
  const float undefined = reduce_floats(ReduceOp::kProduct, {0.0F, -kInfiniteFloat});
  EXPECT_EQ(std::bit_cast<std::uint32_t>(undefined), quiet);
}

TEST(Reduction, InfinitiesAreValues) {
  EXPECT_EQ(reduce_floats(ReduceOp::kSum, {1.0F, kInfiniteFloat}), kInfiniteFloat);
  EXPECT_EQ(reduce_floats(ReduceOp::kMin, {1.0F, -kInfiniteFloat, kInfiniteFloat}),
            -kInfiniteFloat);
  EXPECT_EQ(reduce_floats(ReduceOp::kMax, {1.0F, -kInfiniteFloat, kInfiniteFloat}), kInfiniteFloat);
}

TEST(Reduction, OfEqualZerosTheEarlierStays) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_FALSE(std::signbit(reduce_floats(op, {0.0F, -0.0F})));
    EXPECT_TRUE(std::signbit(reduce_floats(op, {-0.0F, 0.0F})));
  }
}

// ---- Conversions

TEST(Conversion, FloatsComeBackFromEveryWiderOrEqualType) {
  const std::vector<float> values{0.0F, -0.0F, 1.5F, -3.25F, 65504.0F, kInfiniteFloat, 0x1p-24F};
  for (const DataType type : {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16}) {
    Bytes stored(1 + values.size() * element_size(type));
    std::vector<float> back(values.size());
    convert_from_float(type, values.data(), values.size(), stored.data() + 1);
    convert_to_float(type, stored.data() + 1, values.size(), back.data());
    EXPECT_EQ(std::memcmp(back.data(), values.data(), values.size() * sizeof(float)), 0)
        << data_type_name(type);
  }
}

TEST(Conversion, RoundsToNearestEven) {
  const std::array<double, 4> doubles{1.0 + 0x1p-24, 1.0 + 0x3p-24, 1e300, std::nan("1")};
  std::array<float, 4> floats{};
  convert_to_float(DataType::kFloat64, reinterpret_cast<const std::uint8_t*>(doubles.data()), 4,
                   floats.data());
  EXPECT_EQ(floats[0], 1.0F);
  EXPECT_EQ(floats[1], 1.0F + 0x1p-22F);
  EXPECT_EQ(floats[2], kInfiniteFloat);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(floats[3]), 0x7FC00000U);

  const std::array<float, 3> ties{1.0F + 0x1p-8F, 1.0F + 0x3p-8F, kNaN};
  std::array<std::uint16_t, 3> halves{};
  convert_from_float(DataType::kBfloat16, ties.data(), 3,
                     reinterpret_cast<std::uint8_t*>(halves.data()));
  EXPECT_EQ(halves, (std::array<std::uint16_t, 3>{0x3F80, 0x3F82, 0x7FC0}));
}

TEST(Conversion, EmptyBuffersNeedNoAddress) {
  for (std::size_t index = 0; index < kDataTypes; ++index) {
    if (is_floating(static_cast<DataType>(index))) {
      convert_to_float(static_cast<DataType>(index), nullptr, 0, nullptr);
      convert_from_float(static_cast<DataType>(index), nullptr, 0, nullptr);
    }
  }
}

}  // namespace

namespace {

using codec::reference::bf16_to_float;
using codec::reference::float_to_bf16;
using codec::reference::float_to_fp16;
using codec::reference::fp16_to_float;

constexpr std::uint32_t kHalves = 65536;
constexpr float kInfinite = std::numeric_limits<float>::infinity();

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

// The processor's own conversion, and the portable one.
struct Float16Way {
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
};

class Float16 : public testing::TestWithParam<Float16Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, Float16,
                         testing::Values(Float16Way{float16_to_float, float_to_float16},
                                         Float16Way{half_float::float16_to_float_portably,
                                                    half_float::float_to_float16_portably}),
                         [](const auto& tested) {
                           return tested.index == 0 ? "chosen" : "portable";
                         });

TEST_P(Float16, EveryValueIsWidenedExactlyAndComesBack) {
  for (std::uint32_t half = 0; half < kHalves; ++half) {
    const auto stored = static_cast<std::uint16_t>(half);
    const float wide = GetParam().widen(stored);
    if ((half & 0x7FFF) > kFloat16Infinity) {
      ASSERT_TRUE(std::isnan(wide)) << half;
      ASSERT_EQ(GetParam().narrow(wide), kFloat16NaN) << half;
    } else {
      ASSERT_EQ(bits_of(wide), bits_of(fp16_to_float(stored))) << half;
      ASSERT_EQ(GetParam().narrow(wide), stored) << half;
    }
  }
}

// Between two neighbours the middle goes to the even one, anything else to the nearer. Above the
// largest value the next one would be 65536; infinity stands in for it.
TEST_P(Float16, TiesGoToTheEvenNeighbour) {
  for (std::uint16_t low = 0; low < kFloat16Infinity; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const float below = fp16_to_float(low);
    const float above = high == kFloat16Infinity ? 65536.0F : fp16_to_float(high);
    const float middle = below + (above - below) / 2;
    const std::uint16_t even = low % 2 == 0 ? low : high;
    for (const std::uint16_t sign : {0, 0x8000}) {
      const float signed_one = sign == 0 ? 1.0F : -1.0F;
      ASSERT_EQ(GetParam().narrow(signed_one * middle), sign | even) << low;
      ASSERT_EQ(GetParam().narrow(signed_one * std::nextafter(middle, 0.0F)), sign | low) << low;
      ASSERT_EQ(GetParam().narrow(signed_one * std::nextafter(middle, kInfinite)), sign | high)
          << low;
    }
  }
}

TEST_P(Float16, AnyFloatIsRoundedAsTheReferenceDoes) {
  constexpr std::uint64_t kStride = 4093;  // a prime: all parts of a float take many values
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += kStride) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const std::uint16_t expected = std::isnan(value) ? kFloat16NaN : float_to_fp16(value);
    ASSERT_EQ(GetParam().narrow(value), expected) << bits;
  }
}

TEST_P(Float16, TheEndsOfTheRange) {
  EXPECT_EQ(GetParam().narrow(65504.0F), 0x7BFF);
  EXPECT_EQ(GetParam().narrow(std::numeric_limits<float>::max()), kFloat16Infinity);
  EXPECT_EQ(GetParam().narrow(-kInfinite), 0x8000 | kFloat16Infinity);
  EXPECT_EQ(GetParam().narrow(-0.0F), 0x8000);
  EXPECT_EQ(GetParam().narrow(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(GetParam().narrow(-std::numeric_limits<float>::quiet_NaN()), kFloat16NaN);
}

TEST(Bfloat16, EveryValueComesBack) {
  for (std::uint32_t half = 0; half < kHalves; ++half) {
    const auto stored = static_cast<std::uint16_t>(half);
    const float wide = bfloat16_to_float(stored);
    ASSERT_EQ(bits_of(wide), bits_of(bf16_to_float(stored)));
    ASSERT_EQ(float_to_bfloat16(wide), std::isnan(wide) ? kBfloat16NaN : stored) << half;
  }
}

TEST(Bfloat16, TiesGoToTheEvenNeighbour) {
  for (std::uint32_t low = 0; low < 0x7F80; ++low) {
    const std::uint32_t middle = low << 16 | 0x8000;
    const std::uint32_t even = low + low % 2;
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(middle)), even) << low;
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(middle - 1)), low) << low;
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(middle + 1)), low + 1) << low;
  }
}

TEST(Bfloat16, AnyFloatIsRoundedAsTheReferenceDoes) {
  constexpr std::uint64_t kStride = 4093;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += kStride) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const std::uint16_t expected = std::isnan(value) ? kBfloat16NaN : float_to_bf16(value);
    ASSERT_EQ(float_to_bfloat16(value), expected) << bits;
  }
}

}  // namespace

}  // namespace spillway::collective
