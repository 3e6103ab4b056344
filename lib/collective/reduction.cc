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
};

struct Float16 {
  using Stored = std::uint16_t;
  using Value = float;
  static Value widen(Stored stored) { return float16_to_float(stored); }
  static Stored narrow(Value value) { return float_to_float16(value); }
};

struct Bfloat16 {
  using Stored = std::uint16_t;
  using Value = float;
  static Value widen(Stored stored) { return bfloat16_to_float(stored); }
  static Stored narrow(Value value) { return float_to_bfloat16(value); }
};

template <typename T>
struct Integer {
  using Stored = T;
  using Value = T;
  static Value widen(Stored stored) { return stored; }
  static Stored narrow(Value value) { return value; }
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

// Few sources run abreast, through registers: a tile is read from all of them before any of it is
// written, so that the target may be one of them.
constexpr std::size_t kTile = 32;
constexpr std::size_t kMaxAbreast = 4;

// Returns how many elements it has done: all but less than a tile.
template <typename Format, typename Op, std::size_t... Later>
[[gnu::noinline]] std::size_t reduce_tiles(const Reduction& job, std::index_sequence<Later...>) {
  using Value = typename Format::Value;
  const std::uint8_t* const source = job.sources[0];
  [[maybe_unused]] const std::array<const std::uint8_t*, sizeof...(Later)> later{
      job.sources[Later + 1]...};
  std::uint8_t* const target = job.target;
  const Ending<Value> end = ending<Value>(job.divisor);
  const std::size_t whole = job.count / kTile * kTile;
  for (std::size_t first = 0; first < whole; first += kTile) {
    std::array<Value, kTile> tile;
    for (std::size_t i = 0; i < kTile; ++i) {
      Value value = load<Format>(source, first + i);
      ((value = Op::fold(value, load<Format>(later[Later], first + i))), ...);
      tile[i] = value;
    }
    finish_block<Value>(end, tile);
    for (std::size_t i = 0; i < kTile; ++i) {
      store<Format>(target, first + i, tile[i]);
    }
  }
  return whole;
}

// Many sources are folded, a few at a time, into a block that stays in the first-level cache.
constexpr std::size_t kBlockBytes = 4096;

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

template <typename Format, typename Op, std::size_t... Each>
[[gnu::noinline]] void fold_all(const std::uint8_t* const* sources, std::size_t offset,
                                std::size_t count, typename Format::Value* __restrict values,
                                std::index_sequence<Each...>) {
  const std::array<const std::uint8_t*, sizeof...(Each)> from{(sources[Each] + offset)...};
  for (std::size_t i = 0; i < count; ++i) {
    typename Format::Value value = values[i];
    ((value = Op::fold(value, load<Format>(from[Each], i))), ...);
    values[i] = value;
  }
}

// ---- Loops over buffers

template <typename Format, typename Op>
void reduce_blocks(const Reduction& job, std::size_t first) {
  using Value = typename Format::Value;
  std::array<Value, kBlockBytes / sizeof(Value)> block;
  const std::uint8_t* const* const sources = job.sources.data();
  const std::size_t source_count = job.sources.size();
  for (; first < job.count; first += block.size()) {
    const std::size_t count = std::min(block.size(), job.count - first);
    const std::size_t offset = first * sizeof(typename Format::Stored);
    widen_all<Format>(sources[0] + offset, count, block.data());
    std::size_t next = 1;
    for (; next + kMaxAbreast <= source_count; next += kMaxAbreast) {
      fold_all<Format, Op>(sources + next, offset, count, block.data(),
                           std::make_index_sequence<kMaxAbreast>());
    }
    for (; next < source_count; ++next) {
      fold_all<Format, Op>(sources + next, offset, count, block.data(),
                           std::make_index_sequence<1>());
    }
    finish_block(ending<Value>(job.divisor), std::span(block).first(count));
    narrow_all<Format>(block.data(), count, job.target + offset);
  }
}

template <typename Format, typename Op>
std::size_t reduce_abreast(const Reduction& job) {
  switch (job.sources.size()) {
    case 1:
      return reduce_tiles<Format, Op>(job, std::make_index_sequence<0>());
    case 2:
      return reduce_tiles<Format, Op>(job, std::make_index_sequence<1>());
    case 3:
      return reduce_tiles<Format, Op>(job, std::make_index_sequence<2>());
    case kMaxAbreast:
      return reduce_tiles<Format, Op>(job, std::make_index_sequence<kMaxAbreast - 1>());
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
