// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy/float_coder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace spillway::codec::entropy {
namespace {

// Exponents of gradients are near and below that of 1, so that the integers of plane 0 are small.
constexpr unsigned kExponentBias = 127;
// Bytes of a plane that are looked at before it is coded.
constexpr std::size_t kSample = 2048;
// A plane is coded if pairs of its bytes are equal so many times as often as random ones.
constexpr std::uint64_t kUneven = 4;

constexpr std::size_t bytes_of(FloatWidth width) {
  return static_cast<std::size_t>(width);
}

// Writes the planes one after the other, `count` bytes each.
void split(const std::uint8_t* values, std::size_t count, FloatWidth width, std::int8_t* planes) {
  std::int8_t* const first = planes;
  std::int8_t* const second = planes + count;
  if (width == FloatWidth::kTwo) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto upper = std::rotl(base::load_le<std::uint16_t>(values + 2 * i), 1);
      first[i] = static_cast<std::int8_t>((upper >> 8) - kExponentBias);
      second[i] = static_cast<std::int8_t>(upper);
    }
    return;
  }
  std::int8_t* const third = planes + 2 * count;
  std::int8_t* const fourth = planes + 3 * count;
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = base::load_le<std::uint32_t>(values + 4 * i);
    first[i] = static_cast<std::int8_t>((value >> 23) - kExponentBias);
    second[i] = static_cast<std::int8_t>((value >> 15 & 0xFEU) | value >> 31);
    third[i] = static_cast<std::int8_t>(value >> 8);
    fourth[i] = static_cast<std::int8_t>(value);
  }
}

// The reverse of split().
void join(const std::int8_t* planes, std::size_t count, FloatWidth width, std::uint8_t* values) {
  const auto byte = [](std::int8_t of_plane) { return static_cast<std::uint8_t>(of_plane); };
  const std::int8_t* const first = planes;
  const std::int8_t* const second = planes + count;
  if (width == FloatWidth::kTwo) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto exponent = static_cast<std::uint8_t>(first[i] + kExponentBias);
      const auto upper = static_cast<std::uint16_t>(exponent << 8 | byte(second[i]));
      base::store_le(values + 2 * i, std::rotr(upper, 1));
    }
    return;
  }
  const std::int8_t* const third = planes + 2 * count;
  const std::int8_t* const fourth = planes + 3 * count;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t exponent = static_cast<std::uint8_t>(first[i] + kExponentBias);
    const std::uint32_t rest = byte(second[i]);
    const std::uint32_t lower = std::uint32_t{byte(third[i])} << 8 | byte(fourth[i]);
    base::store_le(values + 4 * i, rest << 31 | exponent << 23 | (rest & 0xFEU) << 15 | lower);
  }
}

// True if coding the plane is likely to shorten it.
bool is_uneven(std::span<const std::int8_t> plane) {
  const std::size_t sample = std::min(plane.size(), kSample);
  const std::size_t stride = plane.size() / std::max<std::size_t>(sample, 1);
  std::array<std::uint32_t, 256> counts{};
  for (std::size_t i = 0; i < sample; ++i) {
    ++counts[static_cast<std::uint8_t>(plane[i * stride])];
  }
  std::uint64_t equal = 0;
  for (const std::uint64_t count : counts) {
    equal += count * count;
  }
  // A byte of the sample is equal to itself.
  return (equal - sample) * counts.size() > kUneven * sample * sample;
}

base::Status malformed(const char* text) {
  return {base::StatusCode::kMalformed, text};
}

}  // namespace

std::optional<std::size_t> FloatEncoder::encode(base::ByteView values, FloatWidth width,
                                                base::MutableByteView out) {
  SPILLWAY_CHECK(values.size() % bytes_of(width) == 0);
  base::ByteWriter writer(out);
  const std::size_t block_bytes = kFloatBlockValues * bytes_of(width);
  for (std::size_t at = 0; at < values.size(); at += block_bytes) {
    const base::ByteView block = values.subspan(at, std::min(block_bytes, values.size() - at));
    const std::size_t count = block.size() / bytes_of(width);
    planes_.resize(std::max(planes_.size(), block.size()));
    split(block.data(), count, width, planes_.data());
    for (std::size_t plane = 0; plane < bytes_of(width); ++plane) {
      if (!write_plane(std::span(planes_).subspan(plane * count, count), writer)) {
        return std::nullopt;
      }
    }
  }
  return writer.position();
}

// False if there is no room.
bool FloatEncoder::write_plane(std::span<const std::int8_t> plane, base::ByteWriter& writer) {
  if (is_uneven(plane)) {
    coded_.resize(std::max(coded_.size(), max_block_bytes(plane.size(), 8)));
    const base::Result<EncodedBlock> block =
        blocks_.encode_inline(plane, Alphabet::bytes(), base::MutableByteView(coded_));
    SPILLWAY_CHECK(block.ok());
    if (block->bytes < plane.size()) {
      writer.write(static_cast<std::uint32_t>(block->bytes));
      writer.append(base::ByteView(coded_).first(block->bytes));
      return writer.ok();
    }
  }
  writer.write(static_cast<std::uint32_t>(plane.size()));
  const base::MutableByteView room = writer.reserve(plane.size());
  if (writer.ok()) {
    std::memcpy(room.data(), plane.data(), plane.size());
  }
  return writer.ok();
}

base::Status FloatDecoder::decode(base::ByteView code, FloatWidth width,
                                  base::MutableByteView values) {
  if (values.size() % bytes_of(width) != 0) {
    return base::invalid_argument("floats to decode must be whole");
  }
  base::ByteReader reader(code);
  const std::size_t block_bytes = kFloatBlockValues * bytes_of(width);
  for (std::size_t at = 0; at < values.size(); at += block_bytes) {
    const base::MutableByteView block =
        values.subspan(at, std::min(block_bytes, values.size() - at));
    const std::size_t count = block.size() / bytes_of(width);
    planes_.resize(std::max(planes_.size(), block.size()));
    for (std::size_t plane = 0; plane < bytes_of(width); ++plane) {
      const base::Status status =
          read_plane(reader, std::span(planes_).subspan(plane * count, count));
      if (!status.ok()) {
        return status;
      }
    }
    join(planes_.data(), count, width, block.data());
  }
  return {};
}

base::Status FloatDecoder::read_plane(base::ByteReader& reader, std::span<std::int8_t> plane) {
  const auto bytes = reader.read<std::uint32_t>();
  if (!reader.ok() || bytes > plane.size()) {
    return malformed("coded floats have a plane that is too long");
  }
  const base::ByteView content = reader.take(bytes);
  if (!reader.ok()) {
    return malformed("coded floats end before their last plane");
  }
  if (bytes < plane.size()) {
    return blocks_.decode(content, /*known=*/nullptr, plane);
  }
  std::memcpy(plane.data(), content.data(), bytes);
  return {};
}

}  // namespace spillway::codec::entropy
