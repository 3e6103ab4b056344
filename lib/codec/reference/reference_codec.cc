// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/reference_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "codec/reference/coordinates.h"

namespace spillway::codec::reference {
namespace {

base::Status wrong_length(std::string_view codec, std::size_t count, std::size_t expected,
                          std::size_t actual) {
  return {base::StatusCode::kMalformed, std::string(codec) + " encodes " + std::to_string(count) +
                                            " coordinates in " + std::to_string(expected) +
                                            " bytes, not " + std::to_string(actual)};
}

std::string known_names() {
  std::string names = "drive";
  for (const auto& codec : all_reference_codecs()) {
    names += ", ";
    names += codec->name();
  }
  return names;
}

}  // namespace

double ReferenceCodec::bits_per_coordinate(std::size_t count) const {
  if (count == 0) {
    return 0.0;
  }
  return 8.0 * static_cast<double>(encoded_bytes(count)) / static_cast<double>(count);
}

std::vector<std::uint8_t> ReferenceCodec::encode(std::span<const float> tensor,
                                                 std::uint64_t seed) const {
  SPILLWAY_CHECK(tensor.size() <= kMaxTensorLength);
  std::vector<std::uint8_t> bytes(encoded_bytes(tensor.size()));
  encode_into(tensor, seed, bytes);
  return bytes;
}

base::Status ReferenceCodec::decode(base::ByteView bytes, std::size_t count, std::uint64_t seed,
                                    std::span<float> out) const {
  if (out.size() != count) {
    return base::invalid_argument("the output has room for " + std::to_string(out.size()) +
                                  " coordinates, not for " + std::to_string(count));
  }
  if (count > kMaxTensorLength) {
    return {base::StatusCode::kLimitExceeded,
            "a tensor has at most " + std::to_string(kMaxTensorLength) + " coordinates"};
  }
  if (bytes.size() != encoded_bytes(count)) {
    return wrong_length(name(), count, encoded_bytes(count), bytes.size());
  }
  return decode_from(bytes, seed, out);
}

std::vector<std::unique_ptr<ReferenceCodec>> all_reference_codecs() {
  std::vector<std::unique_ptr<ReferenceCodec>> codecs;
  for (unsigned bits = 1; bits <= kMaxQuantiserBits; ++bits) {
    codecs.push_back(std::make_unique<EdenCodec>(bits));
  }
  codecs.push_back(std::make_unique<Bf16Codec>());
  codecs.push_back(std::make_unique<Fp16Codec>());
  codecs.push_back(std::make_unique<Int8BlockCodec>());
  codecs.push_back(std::make_unique<TopKCodec>());
  return codecs;
}

base::Result<std::unique_ptr<ReferenceCodec>> make_reference_codec(std::string_view name) {
  const std::string_view wanted = name == "drive" ? "eden-1" : name;
  for (auto& codec : all_reference_codecs()) {
    if (codec->name() == wanted) {
      return std::move(codec);
    }
  }
  return base::invalid_argument("no reference codec is called \"" + std::string(name) +
                                "\"; use one of " + known_names());
}

// ------------------------------------------------------------------ bf16 and fp16

namespace {

constexpr std::uint32_t kFloatInfinity = 0x7F800000;
constexpr std::uint32_t kFloatMagnitude = 0x7FFFFFFF;

constexpr std::uint32_t kHalfInfinity = 0x7C00;
constexpr std::uint32_t kHalfQuiet = 0x0200;
constexpr std::uint32_t kHalfSmallestNormal = 0x38800000;  // 2^-14 as a float
constexpr std::uint32_t kHalfBeyondRange = 0x47800000;     // 2^16 as a float
constexpr std::uint32_t kRebias = (127U - 15U) << 23;

// Drops `shift` low bits, rounding to nearest, ties to even. A carry out of the mantissa correctly
// raises the exponent: all ones become the next power of two, or infinity at the top.
constexpr std::uint32_t shift_rounded(std::uint32_t bits, unsigned shift) {
  const std::uint32_t odd = bits >> shift & 1U;
  return (bits + (1U << (shift - 1)) - 1 + odd) >> shift;
}

std::uint32_t half_magnitude(std::uint32_t magnitude) {
  if (magnitude > kFloatInfinity) {
    const std::uint32_t payload = magnitude >> 13 & 0x3FF;
    return kHalfInfinity | (payload != 0 ? payload : kHalfQuiet);
  }
  if (magnitude >= kHalfBeyondRange) {
    return kHalfInfinity;
  }
  if (magnitude >= kHalfSmallestNormal) {
    return shift_rounded(magnitude - kRebias, 13);
  }
  // Denormals count steps of 2^-24, the last digit of floats in [0.5, 1). So adding 0.5 makes the
  // addition itself round to such steps, ties to even.
  const float stepped = std::bit_cast<float>(magnitude) + 0.5F;
  return std::bit_cast<std::uint32_t>(stepped) - std::bit_cast<std::uint32_t>(0.5F);
}

template <typename ToHalf>
void encode_halves(std::span<const float> tensor, base::MutableByteView bytes, ToHalf to_half) {
  base::ByteWriter writer(bytes);
  for (const float value : tensor) {
    writer.write<std::uint16_t>(to_half(value));
  }
}

template <typename FromHalf>
void decode_halves(base::ByteView bytes, std::span<float> out, FromHalf from_half) {
  base::ByteReader reader(bytes);
  for (float& value : out) {
    value = from_half(reader.read<std::uint16_t>());
  }
}

}  // namespace

std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & kFloatMagnitude) > kFloatInfinity) {
    const std::uint32_t top = bits >> 16;
    return static_cast<std::uint16_t>((top & 0x7F) != 0 ? top : top | 0x40);
  }
  return static_cast<std::uint16_t>(shift_rounded(bits, 16));
}

float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t float_to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | half_magnitude(bits & kFloatMagnitude));
}

float fp16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= kHalfInfinity) {
    return std::bit_cast<float>(sign | kFloatInfinity | (magnitude & 0x3FF) << 13);
  }
  if (magnitude < 0x0400) {
    const float denormal = static_cast<float>(magnitude) * 0x1p-24F;  // exact
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(denormal));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + kRebias));
}

void Bf16Codec::encode_into(std::span<const float> tensor, std::uint64_t /*seed*/,
                            base::MutableByteView bytes) const {
  encode_halves(tensor, bytes, float_to_bf16);
}

base::Status Bf16Codec::decode_from(base::ByteView bytes, std::uint64_t /*seed*/,
                                    std::span<float> out) const {
  decode_halves(bytes, out, bf16_to_float);
  return {};
}

void Fp16Codec::encode_into(std::span<const float> tensor, std::uint64_t /*seed*/,
                            base::MutableByteView bytes) const {
  encode_halves(tensor, bytes, float_to_fp16);
}

base::Status Fp16Codec::decode_from(base::ByteView bytes, std::uint64_t /*seed*/,
                                    std::span<float> out) const {
  decode_halves(bytes, out, fp16_to_float);
  return {};
}

// ------------------------------------------------------------------ int8

namespace {

constexpr std::uint32_t kRoundingDomain = 0x494E5438U;  // "INT8"
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The smallest float whose 127-fold reaches the largest magnitude; NaN if a value is not finite.
float scale_of(std::span<const float> block) {
  float peak = 0.0F;
  for (const float value : block) {
    if (!std::isfinite(value)) {
      return std::numeric_limits<float>::quiet_NaN();
    }
    peak = std::max(peak, std::fabs(value));
  }
  const float scale = peak / 127.0F;
  const bool short_of_peak = static_cast<double>(scale) * 127.0 < peak;  // exact in double
  return short_of_peak ? std::nextafter(scale, kInfinity) : scale;
}

std::int8_t round_stochastically(float value, float scale, double unit) {
  return static_cast<std::int8_t>(std::floor(static_cast<double>(value) / scale + unit));
}

base::Status check_block(float scale, base::ByteView codes) {
  if (scale < 0.0F || std::isinf(scale)) {
    return {base::StatusCode::kMalformed, "int8: a block's scale is negative or infinite"};
  }
  if (std::find(codes.begin(), codes.end(), std::uint8_t{0x80}) != codes.end()) {
    return {base::StatusCode::kMalformed, "int8: the code -128 is never sent"};
  }
  return {};
}

// Calls visit(scale, codes) for each block; stops at the first error.
template <typename Visit>
base::Status for_each_block(base::ByteView bytes, std::size_t count, Visit visit) {
  base::ByteReader reader(bytes);
  for (std::size_t first = 0; first < count; first += kInt8Block) {
    const auto scale = reader.read<float>();
    const base::ByteView codes = reader.take(std::min(kInt8Block, count - first));
    if (base::Status status = visit(scale, codes); !status.ok()) {
      return status;
    }
  }
  SPILLWAY_CHECK(reader.ok() && reader.remaining() == 0);  // the length was already checked
  return {};
}

}  // namespace

std::size_t Int8BlockCodec::encoded_bytes(std::size_t count) const {
  const std::size_t blocks = count / kInt8Block + (count % kInt8Block != 0 ? 1 : 0);
  return blocks * sizeof(float) + count;
}

void Int8BlockCodec::encode_into(std::span<const float> tensor, std::uint64_t seed,
                                 base::MutableByteView bytes) const {
  base::ByteWriter writer(bytes);
  CoordinateDraws draws(seed, kRoundingDomain);
  for (std::size_t first = 0; first < tensor.size(); first += kInt8Block) {
    const auto block = tensor.subspan(first, std::min(kInt8Block, tensor.size() - first));
    const float scale = scale_of(block);
    writer.write(scale);
    for (std::size_t i = 0; i < block.size(); ++i) {
      const double unit = draws.unit(first + i);
      writer.write<std::int8_t>(scale > 0.0F ? round_stochastically(block[i], scale, unit)
                                             : std::int8_t{0});
    }
  }
  SPILLWAY_CHECK(writer.ok() && writer.remaining() == 0);
}

base::Status Int8BlockCodec::decode_from(base::ByteView bytes, std::uint64_t /*seed*/,
                                         std::span<float> out) const {
  if (base::Status status = for_each_block(bytes, out.size(), check_block); !status.ok()) {
    return status;
  }
  auto next = out.begin();
  return for_each_block(bytes, out.size(), [&](float scale, base::ByteView codes) {
    next = std::transform(codes.begin(), codes.end(), next, [scale](std::uint8_t code) {
      return saturated(static_cast<double>(scale) * static_cast<std::int8_t>(code));
    });
    return base::Status();
  });
}

// ------------------------------------------------------------------ top-k

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
