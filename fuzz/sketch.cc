// SPDX-License-Identifier: Apache-2.0
//
// The receiving side of a sketch. The input's first byte says what the rest is:
//
//   a set of indices     decoding gives an error, or a set without the excluded indices that
//                        re-encodes within the size limit
//
//   the sums of a step   and where its misses are; decoding gives an error, or a value for every
//                        index that was recovered
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "codec/sketch/sparse_code.h"
#include "codec/sketch/support.h"

using namespace spillway;
using namespace spillway::codec::sketch;

namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

// About `sixteenths` of all indices, in runs of 8, as gradients have zeros.
Support drawn_support(std::size_t length, unsigned sixteenths, std::uint64_t seed) {
  base::RandomSequence random(seed);
  Support support(length);
  for (std::size_t row = 0; row < length; row += 8) {
    if (random.next_below(16) >= sixteenths) {
      continue;
    }
    for (std::size_t i = row; i < std::min(row + 8, length); ++i) {
      support.insert(i);
    }
  }
  return support;
}

void decode_set(base::ByteView bytes, const Support& excluded) {
  const auto decoded = decode_support(bytes, excluded);
  if (!decoded.ok()) {
    return;
  }
  require(decoded->length() == excluded.length() && !decoded->meets(excluded));
  const auto again = encode_support(*decoded, excluded);
  require(again.size() <= encoded_support_limit(excluded.length() - excluded.count()));
  const auto same = decode_support(again, excluded);
  require(same.ok() && *same == *decoded);
}

// Bytes become the sums; their set bits also mark the misses.
void decode_sums(base::ByteView bytes, const Support& expected) {
  const std::size_t length = expected.length();
  SparseCode code = *SparseCode::make(length, {.contributors = 4, .rule = PredictionRule::kLast});
  SparseSum first{std::vector<std::int32_t>(length), Support(length)};
  expected.for_each([&](std::size_t index) { first.values[index] = 1; });
  code.advance(first);
  code.advance(first);
  SparsePart sum{std::vector<std::int32_t>(code.numbers()), Support(length)};
  for (std::size_t i = 0; i < sum.numbers.size() && !bytes.empty(); ++i) {
    sum.numbers[i] = static_cast<std::int8_t>(bytes[i % bytes.size()]);
  }
  for (std::size_t i = 0; i < std::min(length, 8 * bytes.size()); ++i) {
    if ((bytes[i / 8] >> (i % 8) & 1U) != 0) {
      sum.misses.insert(i);
    }
  }
  const auto decoded = code.decode(sum, bytes.size());
  if (!decoded.ok()) {
    return;
  }
  require(decoded->values.size() == length && decoded->misses == sum.misses.count());
  require(decoded->unrecovered.without(sum.misses).count() == 0);
  decoded->unrecovered.for_each([&](std::size_t index) { require(decoded->values[index] == 0); });
  code.advance(*decoded);
  require(code.numbers() <= length);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) {
    return 0;
  }
  const std::size_t length = base::load_le<std::uint16_t>(data + 1);
  const Support drawn = drawn_support(length, data[3] % 16, data[3]);
  const std::vector<std::uint8_t> rest(data + 4, data + size);
  if (data[0] % 2 == 0) {
    decode_set(rest, drawn);
  } else {
    decode_sums(rest, drawn);
  }
  return 0;
}
