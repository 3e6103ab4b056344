// SPDX-License-Identifier: Apache-2.0
//
// Rows of arbitrary floats: NaN, infinities, denormals and magnitudes no gradient has. Every SIMD
// kernel table must match the scalar oracle, and a packet must be able to carry every row header.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "codec/row_codec.h"

using namespace spillway::codec;

namespace {

struct Outcome {
  RowHeader header;
  std::vector<std::uint8_t> planes;
  std::vector<float> values;
};

Outcome through(const Kernels& kernels, const std::vector<float>& row, unsigned planes,
                std::size_t cut) {
  constexpr unsigned kLog2 = 9;
  constexpr std::size_t kLength = std::size_t{1} << kLog2;
  Outcome outcome;
  RowEncoder encoder(kernels);
  outcome.header = encoder.encode(row, kLog2, {42, 7}, planes);
  outcome.planes.resize(kLength / 8 * planes);
  encoder.write_planes(0, kLength, planes, outcome.planes.data());
  outcome.values.resize(kLength);
  const PlaneSpan span{std::span(outcome.planes).first(cut % (outcome.planes.size() + 1)), kLength,
                       planes};
  const std::size_t arrived =
      decode_planes(kernels, span, Estimate::kUnbiased, outcome.values.data());
  finish_row(kernels, outcome.header, {42, 7}, kLog2, arrived, Estimate::kUnbiased,
             outcome.values.data());
  return outcome;
}

// As wire/data_packet.h demands.
bool fits_a_packet(const RowHeader& header) {
  if (header.scale == 0.0F || std::isnan(header.scale)) {
    return header.rotations == 0;
  }
  return std::isfinite(header.scale) && header.scale > 0.0F && header.rotations >= 1 &&
         header.rotations <= kMaxRotations;
}

bool same_bits(const void* a, const void* b, std::size_t size) {
  return std::memcmp(a, b, size) == 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) {
    return 0;
  }
  const unsigned planes = 1 + data[0] % kMaxPlanes;
  const std::size_t cut = std::size_t{data[1]} * 256 + data[2];
  std::vector<float> row(std::min<std::size_t>((size - 3) / sizeof(float), 512));
  if (!row.empty()) {
    std::memcpy(row.data(), data + 3, row.size() * sizeof(float));
  }
  const Outcome expected = through(scalar_kernels(), row, planes, cut);
  if (!fits_a_packet(expected.header)) {
    std::abort();
  }
  for (const Kernels* kernels : available_kernels()) {
    const Outcome actual = through(*kernels, row, planes, cut);
    if (!same_bits(&expected.header.scale, &actual.header.scale, sizeof(float)) ||
        expected.header.rotations != actual.header.rotations || expected.planes != actual.planes ||
        !same_bits(expected.values.data(), actual.values.data(),
                   expected.values.size() * sizeof(float))) {
      std::abort();
    }
  }
  return 0;
}
