// SPDX-License-Identifier: Apache-2.0
//
// Compilers turn each loop over elements into vector instructions: loops have no branches, and run
// between buffers and an array that nothing else points to.
#include "collective/reduction.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <concepts>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace spillway::collective {
namespace {

static_assert(FLT_EVAL_METHOD == 0,
              "floats must be computed as floats: wider steps round otherwise");

// ---- How each type is read, computed with and written

template <typename T>
T quiet(T value) {
  return value != value ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <typename T>
struct Floating {
  using Stored = T;
  using Value = T;
  static Value widen(Stored stored) { return stored; }
  static Stored narrow(Value value) { return quiet(value); }
  static Value rounded(Value value) { return value; }
};

struct Float16 {
  using Stored = std::uint16_t;
  using Value = float;
  static Value widen(Stored stored) { return float16_to_float(stored); }
  static Stored narrow(Value value) { return float_to_float16(value); }
  static Value rounded(Value value) { return widen(narrow(value)); }
};

struct Bfloat16 {
  using Stored = std::uint16_t;
  using Value = float;
  static Value widen(Stored stored) { return bfloat16_to_float(stored); }
  static Stored narrow(Value value) { return float_to_bfloat16(value); }
  static Value rounded(Value value) { return widen(narrow(value)); }
};

template <typename T>
struct Integer {
  using Stored = T;
  using Value = T;
  static Value widen(Stored stored) { return stored; }
  static Stored narrow(Value value) { return value; }
  static Value rounded(Value value) { return value; }
};

template <typename Format>
typename Format::Value load(const std::uint8_t* from, std::size_t index) {
  using Stored = typename Format::Stored;
  return Format::widen(base::load_le<Stored>(from + index * sizeof(Stored)));
}

template <typename Format>
void store(std::uint8_t* to, std::size_t index, typename Format::Value value) {
  base::store_le(to + index * sizeof(typename Format::Stored), Format::narrow(value));
}

// ---- How two elements are combined

struct Sum {
  template <std::floating_point T>
  static T fold(T a, T b) {
    return a + b;
  }
  template <std::integral T>
  static T fold(T a, T b) {
    using Wrapping = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
  }
};

struct Product {
  template <std::floating_point T>
  static T fold(T a, T b) {
    return a * b;
  }
  template <std::integral T>
  static T fold(T a, T b) {
    using Wrapping = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
  }
};

struct BitAnd {
  template <std::integral T>
  static T fold(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct BitOr {
  template <std::integral T>
  static T fold(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct BitXor {
  template <std::integral T>
  static T fold(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// A NaN that comes first loses no comparison, and one that comes second wins each. (For integers
// the second comparison is never true.)
struct Min {
  template <typename T>
  static T fold(T a, T b) {
    return static_cast<bool>((b < a) | (b != b)) ? b : a;
  }
};

struct Max {
  template <typename T>
  static T fold(T a, T b) {
    return static_cast<bool>((b > a) | (b != b)) ? b : a;
  }
};

// ---- How sums are divided at the end

template <typename Value>
struct Ending {
  enum class Kind { kNone, kDivide, kMultiply };
  Kind kind{};
  Value operand{};
};

// Multiplying by the reciprocal of a power of two gives the same bits as dividing, much faster.
template <typename Value>
Ending<Value> ending(std::size_t divisor) {
  using Kind = typename Ending<Value>::Kind;
  if (divisor == 0) {
    return {};
  }
  const auto operand = static_cast<Value>(divisor);
  if constexpr (std::is_floating_point_v<Value>) {
    if (std::has_single_bit(divisor)) {
      return {Kind::kMultiply, Value{1} / operand};
    }
  }
  return {Kind::kDivide, operand};
}

template <typename Value>
void finish_block(const Ending<Value>& ending, std::span<Value> values) {
  using Kind = typename Ending<Value>::Kind;
  if (ending.kind == Kind::kDivide) {
    for (Value& value : values) {
      value = value / ending.operand;
    }
  } else if (ending.kind == Kind::kMultiply) {
    for (Value& value : values) {
      value = value * ending.operand;
    }
  }
}

// ---- Loops over elements
//
// [[gnu::noinline]]: if these are inlined into a loop over sources, g++ 12 unrolls that loop into
// them, which gathers elements one by one.

struct Reduction {
  std::span<const std::uint8_t* const> sources;
  std::size_t count;
  std::uint8_t* target;
  std::size_t divisor;  // 0: none
};

// Up to so many sources run abreast, through registers.
constexpr std::size_t kMaxAbreast = 4;

// Element `i` of the tree over the sources, before it is rounded.
template <typename Format, typename Op, std::size_t Count>
typename Format::Value fold_abreast(const std::array<const std::uint8_t*, Count>& sources,
                                    std::size_t i) {
  static_assert(Count >= 1 && Count <= kMaxAbreast);
  const auto at = [&](std::size_t source) { return load<Format>(sources[source], i); };
  if constexpr (Count == 1) {
    return at(0);
  } else if constexpr (Count == 2) {
    return Op::fold(at(0), at(1));
  } else if constexpr (Count == 3) {
    return Op::fold(Format::rounded(Op::fold(at(0), at(1))), at(2));
  } else {
    return Op::fold(Format::rounded(Op::fold(at(0), at(1))),
                    Format::rounded(Op::fold(at(2), at(3))));
  }
}

template <std::size_t Count>
std::array<const std::uint8_t*, Count> starts_at(const std::uint8_t* const* sources,
                                                 std::size_t offset) {
  std::array<const std::uint8_t*, Count> starts;
  for (std::size_t k = 0; k < Count; ++k) {
    starts[k] = sources[k] + offset;
  }
  return starts;
}

// A tile is read from all sources before any of it is written, so that the target may be one of
// them. Returns how many elements it has done: all but less than a tile.
constexpr std::size_t kTile = 32;

template <typename Format, typename Op, std::size_t Count>
[[gnu::noinline]] std::size_t reduce_tiles(const Reduction& job) {
  using Value = typename Format::Value;
  const auto sources = starts_at<Count>(job.sources.data(), 0);
  std::uint8_t* const target = job.target;
  const Ending<Value> end = ending<Value>(job.divisor);
  const std::size_t whole = job.count / kTile * kTile;
  for (std::size_t first = 0; first < whole; first += kTile) {
    std::array<Value, kTile> tile;
    for (std::size_t i = 0; i < kTile; ++i) {
      tile[i] = fold_abreast<Format, Op>(sources, first + i);
    }
    finish_block<Value>(end, tile);
    for (std::size_t i = 0; i < kTile; ++i) {
      store<Format>(target, first + i, tile[i]);
    }
  }
  return whole;
}

// More sources meet in blocks that stay in the first-level cache, one for each level of the tree.
constexpr std::size_t kBlockBytes = 4096;

template <typename Format>
using Block = std::array<typename Format::Value, kBlockBytes / sizeof(typename Format::Value)>;

template <typename Format>
[[gnu::noinline]] void widen_all(const std::uint8_t* __restrict from, std::size_t count,
                                 typename Format::Value* __restrict to) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = load<Format>(from, i);
  }
}

template <typename Format>
[[gnu::noinline]] void narrow_all(const typename Format::Value* __restrict from, std::size_t count,
                                  std::uint8_t* __restrict to) {
  for (std::size_t i = 0; i < count; ++i) {
    store<Format>(to, i, from[i]);
  }
}

template <typename Format, typename Op, std::size_t Count>
[[gnu::noinline]] void fold_few(const std::uint8_t* const* first, std::size_t offset,
                                std::size_t count, typename Format::Value* __restrict to) {
  const auto sources = starts_at<Count>(first, offset);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = fold_abreast<Format, Op>(sources, i);
  }
}

template <typename Format, typename Op>
[[gnu::noinline]] void fold_halves(const typename Format::Value* __restrict right,
                                   std::size_t count, typename Format::Value* __restrict left) {
  for (std::size_t i = 0; i < count; ++i) {
    left[i] = Op::fold(Format::rounded(left[i]), Format::rounded(right[i]));
  }
}

// The tree over the sources, before its top is rounded.
template <typename Format, typename Op>
void fold_tree(std::span<const std::uint8_t* const> sources, std::size_t offset, std::size_t count,
               Block<Format>& sum) {
  const std::uint8_t* const* const first = sources.data();
  switch (sources.size()) {
    case 1:
      return fold_few<Format, Op, 1>(first, offset, count, sum.data());
    case 2:
      return fold_few<Format, Op, 2>(first, offset, count, sum.data());
    case 3:
      return fold_few<Format, Op, 3>(first, offset, count, sum.data());
    case kMaxAbreast:
      return fold_few<Format, Op, kMaxAbreast>(first, offset, count, sum.data());
    default:
      break;
  }
  const std::size_t left = left_of_tree(sources.size());
  Block<Format> right;
  fold_tree<Format, Op>(sources.first(left), offset, count, sum);
  fold_tree<Format, Op>(sources.subspan(left), offset, count, right);
  fold_halves<Format, Op>(right.data(), count, sum.data());
}

// ---- Loops over buffers

template <typename Format, typename Op>
void reduce_blocks(const Reduction& job, std::size_t first) {
  using Value = typename Format::Value;
  Block<Format> block;
  for (; first < job.count; first += block.size()) {
    const std::size_t count = std::min(block.size(), job.count - first);
    const std::size_t offset = first * sizeof(typename Format::Stored);
    fold_tree<Format, Op>(job.sources, offset, count, block);
    finish_block(ending<Value>(job.divisor), std::span(block).first(count));
    narrow_all<Format>(block.data(), count, job.target + offset);
  }
}

template <typename Format, typename Op>
std::size_t reduce_abreast(const Reduction& job) {
  switch (job.sources.size()) {
    case 1:
      return reduce_tiles<Format, Op, 1>(job);
    case 2:
      return reduce_tiles<Format, Op, 2>(job);
    case 3:
      return reduce_tiles<Format, Op, 3>(job);
    case kMaxAbreast:
      return reduce_tiles<Format, Op, kMaxAbreast>(job);
    default:
      return 0;
  }
}

template <typename Format, typename Op>
void reduce_with(const Reduction& job) {
  reduce_blocks<Format, Op>(job, reduce_abreast<Format, Op>(job));
}

template <typename Format>
void reduce_as(ReduceOp op, const Reduction& job) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return reduce_with<Format, Sum>(job);
    case ReduceOp::kMin:
      return reduce_with<Format, Min>(job);
    case ReduceOp::kMax:
      return reduce_with<Format, Max>(job);
    case ReduceOp::kProduct:
      return reduce_with<Format, Product>(job);
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      break;  // for integers only
  }
}

template <typename T>
void reduce_integers(ReduceOp op, const Reduction& job) {
  switch (op) {
    case ReduceOp::kBitAnd:
      return reduce_with<Integer<T>, BitAnd>(job);
    case ReduceOp::kBitOr:
      return reduce_with<Integer<T>, BitOr>(job);
    case ReduceOp::kBitXor:
      return reduce_with<Integer<T>, BitXor>(job);
    default:
      return reduce_as<Integer<T>>(op, job);
  }
}

// memcpy() may not be given the null pointers of empty buffers.
void copy(const void* from, std::size_t bytes, void* to) {
  if (bytes != 0) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

void reduce(DataType type, ReduceOp op, std::span<const std::uint8_t* const> sources,
            std::size_t count, std::uint8_t* target, std::size_t average_over) {
  SPILLWAY_CHECK(!sources.empty() && sources.size() <= kMaxSources);
  SPILLWAY_CHECK(average_over <= kMaxAverageOver && has_reduction(type, op));
  const std::size_t divisor = op == ReduceOp::kAverage ? average_over : 0;
  const Reduction job{sources, count, target, divisor};
  switch (type) {
    case DataType::kFloat32:
      return reduce_as<Floating<float>>(op, job);
    case DataType::kFloat64:
      return reduce_as<Floating<double>>(op, job);
    case DataType::kFloat16:
      return reduce_as<Float16>(op, job);
    case DataType::kBfloat16:
      return reduce_as<Bfloat16>(op, job);
    case DataType::kInt32:
      return reduce_integers<std::int32_t>(op, job);
    case DataType::kInt64:
      return reduce_integers<std::int64_t>(op, job);
    case DataType::kInt8:
      return reduce_integers<std::int8_t>(op, job);
    case DataType::kUint8:
      return reduce_integers<std::uint8_t>(op, job);
  }
}

void convert_to_float(DataType type, const std::uint8_t* from, std::size_t count, float* to) {
  SPILLWAY_CHECK(is_floating(type));
  if (type == DataType::kFloat32) {
    copy(from, count * sizeof(float), to);
  } else if (type == DataType::kFloat64) {
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = quiet(static_cast<float>(load<Floating<double>>(from, i)));
    }
  } else if (type == DataType::kFloat16) {
    widen_all<Float16>(from, count, to);
  } else {
    widen_all<Bfloat16>(from, count, to);
  }
}

void convert_from_float(DataType type, const float* from, std::size_t count, std::uint8_t* to) {
  SPILLWAY_CHECK(is_floating(type));
  if (type == DataType::kFloat32) {
    copy(from, count * sizeof(float), to);
  } else if (type == DataType::kFloat64) {
    for (std::size_t i = 0; i < count; ++i) {
      store<Floating<double>>(to, i, static_cast<double>(from[i]));
    }
  } else if (type == DataType::kFloat16) {
    narrow_all<Float16>(from, count, to);
  } else {
    narrow_all<Bfloat16>(from, count, to);
  }
}

}  // namespace spillway::collective
