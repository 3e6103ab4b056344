// SPDX-License-Identifier: Apache-2.0
#include "codec/reference/int8_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "codec/reference/coordinates.h"

namespace spillway::codec::reference {
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

}  // namespace spillway::codec::reference
