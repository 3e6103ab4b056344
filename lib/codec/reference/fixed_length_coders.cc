// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/fixed_length_coders.h"

#include <algorithm>
#include <bit>

#include "codec/entropy/alphabet.h"
#include "codec/entropy/bit_stream.h"

namespace spillway::codec::reference {
namespace {

using entropy::fold;
using entropy::unfold;

constexpr unsigned kShortBits = 3;
// Folded values from here on are too rare to be among the commonest.
constexpr std::size_t kCandidates = 4096;

unsigned width_of(std::span<const std::int32_t> values) {
  std::uint32_t all = 0;
  for (const std::int32_t value : values) {
    all |= fold(value);
  }
  return static_cast<unsigned>(std::bit_width(all));
}

base::Status bad_code(const char* coder) {
  return {base::StatusCode::kMalformed,
          std::string("bytes that the ") + coder + " coder did not write"};
}

}  // namespace

std::vector<std::uint8_t> PackedCoder::encode(std::span<const std::int32_t> values) {
  std::vector<std::uint8_t> bytes(values.size() * 4 + values.size() / kPackedBlock + 1 +
                                  entropy::kBitSlack);
  std::size_t size = 0;
  for (std::size_t first = 0; first < values.size(); first += kPackedBlock) {
    const auto block = values.subspan(first, std::min(kPackedBlock, values.size() - first));
    const unsigned width = width_of(block);
    bytes[size++] = static_cast<std::uint8_t>(width);
    entropy::BitWriter bits(bytes.data() + size);
    for (const std::int32_t value : block) {
      bits.put(fold(value), width);
    }
    size += bits.bytes();
  }
  bytes.resize(size);
  return bytes;
}

base::Status PackedCoder::decode(base::ByteView bytes, std::span<std::int32_t> values) {
  base::ByteReader reader(bytes);
  for (std::size_t first = 0; first < values.size(); first += kPackedBlock) {
    const auto block = values.subspan(first, std::min(kPackedBlock, values.size() - first));
    const auto width = reader.read<std::uint8_t>();
    if (width > 32) {
      return bad_code("packed");
    }
    entropy::BitReader bits(reader.take((block.size() * width + 7) / 8));
    for (std::int32_t& value : block) {
      value = unfold(bits.get(width));
    }
  }
  return reader.ok() && reader.remaining() == 0 ? base::Status() : bad_code("packed");
}

void DualLengthCoder::learn(std::span<const std::int32_t> values) {
  std::array<std::uint32_t, kCandidates> counts{};
  for (const std::int32_t value : values) {
    if (fold(value) < kCandidates) {
      ++counts[fold(value)];
    }
  }
  std::array<std::uint32_t, kCandidates> order{};
  for (std::uint32_t i = 0; i < kCandidates; ++i) {
    order[i] = i;
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t left, std::uint32_t right) {
    return counts[left] > counts[right];
  });
  std::copy_n(order.begin(), short_.size(), short_.begin());
}

std::vector<std::uint8_t> DualLengthCoder::encode(std::span<const std::int32_t> values) {
  std::vector<std::uint8_t> bytes(1 + (values.size() * 33 + 7) / 8 + entropy::kBitSlack);
  const unsigned width = width_of(values);
  bytes[0] = static_cast<std::uint8_t>(width);
  entropy::BitWriter bits(bytes.data() + 1);
  for (const std::int32_t value : values) {
    const auto* found = std::find(short_.begin(), short_.end(), fold(value));
    if (found != short_.end()) {
      bits.put(static_cast<std::uint32_t>(found - short_.begin()) << 1, 1 + kShortBits);
    } else {
      bits.put(1, 1);
      bits.put(fold(value), width);
    }
  }
  bytes.resize(1 + bits.bytes());
  return bytes;
}

base::Status DualLengthCoder::decode(base::ByteView bytes, std::span<std::int32_t> values) {
  if (bytes.empty() || bytes[0] > 32) {
    return bad_code("dual-length");
  }
  const unsigned width = bytes[0];
  entropy::BitReader bits(bytes.subspan(1));
  for (std::int32_t& value : values) {
    value = unfold(bits.get(1) == 0 ? short_[bits.get(kShortBits)] : bits.get(width));
  }
  return bits.is_at_end() ? base::Status() : bad_code("dual-length");
}

}  // namespace spillway::codec::reference
