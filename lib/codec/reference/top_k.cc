// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/top_k.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <vector>

namespace spillway::codec::reference {
namespace {

struct Entry {
  std::uint32_t index;
  float value;
};

constexpr std::size_t kEntryBytes = sizeof(std::uint32_t) + sizeof(float);

constexpr std::size_t kept_count(std::size_t count) {
  constexpr std::size_t kWhole = 100;
  return count / kWhole * kTopKPercent + (count % kWhole * kTopKPercent + kWhole - 1) / kWhole;
}

std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFF;
}

// The indices of the largest magnitudes, ascending.
std::vector<std::uint32_t> largest(std::span<const float> tensor) {
  std::vector<std::uint32_t> indices(tensor.size());
  std::iota(indices.begin(), indices.end(), 0U);
  const auto kept_end = indices.begin() + static_cast<std::ptrdiff_t>(kept_count(tensor.size()));
  std::nth_element(indices.begin(), kept_end, indices.end(),
                   [tensor](std::uint32_t a, std::uint32_t b) {
                     const std::uint32_t left = magnitude_bits(tensor[a]);
                     const std::uint32_t right = magnitude_bits(tensor[b]);
                     return left != right ? left > right : a < b;
                   });
  indices.erase(kept_end, indices.end());
  std::sort(indices.begin(), indices.end());
  return indices;
}

Entry read_entry(base::ByteReader& reader) {
  const auto index = reader.read<std::uint32_t>();
  return {index, reader.read<float>()};
}

base::Status check_indices(base::ByteView bytes, std::size_t count) {
  std::uint64_t lowest_allowed = 0;
  for (base::ByteReader reader(bytes); reader.remaining() > 0;) {
    const std::uint32_t index = read_entry(reader).index;
    if (index < lowest_allowed || index >= count) {
      return {base::StatusCode::kMalformed, "topk: index " + std::to_string(index) +
                                                " is out of order or not below " +
                                                std::to_string(count)};
    }
    lowest_allowed = std::uint64_t{index} + 1;
  }
  return {};
}

}  // namespace

std::size_t TopKCodec::encoded_bytes(std::size_t count) const {
  return kept_count(count) * kEntryBytes;
}

void TopKCodec::encode_into(std::span<const float> tensor, std::uint64_t /*seed*/,
                            base::MutableByteView bytes) const {
  base::ByteWriter writer(bytes);
  for (const std::uint32_t index : largest(tensor)) {
    writer.write(index);
    writer.write(tensor[index]);
  }
  SPILLWAY_CHECK(writer.ok() && writer.remaining() == 0);
}

base::Status TopKCodec::decode_from(base::ByteView bytes, std::uint64_t /*seed*/,
                                    std::span<float> out) const {
  if (base::Status status = check_indices(bytes, out.size()); !status.ok()) {
    return status;
  }
  std::fill(out.begin(), out.end(), 0.0F);
  for (base::ByteReader reader(bytes); reader.remaining() > 0;) {
    const Entry entry = read_entry(reader);
    out[entry.index] = entry.value;
  }
  return {};
}

}  // namespace spillway::codec::reference
