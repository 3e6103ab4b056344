// SPDX-License-Identifier: Apache-2.0
//
// Coordinates to codes and codes to the words of planes.
//
// A coordinate's code comes from the compander of codec/plane_code.h, evaluated as in
// codec/kernels_scalar.cc.
//
// A column is the 32 coordinates whose bits form one 32-bit word of each plane. A thread encodes or
// decodes a column alone, and neighbouring threads access neighbouring words. Planes are formed
// from blocks of m coordinates (m = 128, or the rest of a packet). Bit k of byte i belongs to
// coordinate k * (m / 8) + i (codec/kernels.h). So word w of a block holds four neighbours from
// each of eight runs: coordinates k * (m / 8) + 4 w + 0..3.

namespace spillway::gpu {

// ------------------------------------------------------------------ compander

// One line of the compander with its constants (codec/plane_code.h) written out; `first_code` is
// its first code. Tests compare them with the codec's.
struct Line {
  float first_code;
  float code_per_unit;
  float code_offset;
  float unit_per_code;
  float unit_offset;
};

DEVICE constexpr Line line_between(double code, double next_code, double unit, double next_unit) {
  const double codes = next_code - code;
  const double units = next_unit - unit;
  return {static_cast<float>(code), static_cast<float>(codes / units),
          static_cast<float>(code - codes / units * unit), static_cast<float>(units / codes),
          static_cast<float>(unit - units / codes * code)};
}

DEVICE constexpr Line compander_line(unsigned number) {
  constexpr double kCodes[] = {0.0, 16384.0, 24576.0, 28672.0, 30720.0, 31744.0, 32768.0};
  constexpr double kUnits[] = {0.0, 1.125, 1.9375, 2.59375, 3.1875, 3.8125, 6.0};
  return line_between(kCodes[number], kCodes[number + 1], kUnits[number], kUnits[number + 1]);
}

inline constexpr float kMaxCode = 32767.0F;
inline constexpr float kMaxMagnitude = 6.0F;

// codec::ScaledCompander.
struct alignas(16) Compander {
  float inner_slope;
  float bend[2];
  float bend_at[2];
  float outer_slope[3];
};

DEVICE Compander scaled_compander(float inverse_scale) {
  constexpr Line kLine0 = compander_line(0);
  constexpr Line kLine1 = compander_line(1);
  constexpr Line kLine2 = compander_line(2);
  constexpr Line kLine3 = compander_line(3);
  constexpr Line kLine4 = compander_line(4);
  constexpr Line kLine5 = compander_line(5);
  Compander compander;
  compander.inner_slope = kLine2.code_per_unit * inverse_scale;
  compander.bend[0] = (kLine0.code_per_unit - kLine1.code_per_unit) * inverse_scale;
  compander.bend[1] = (kLine1.code_per_unit - kLine2.code_per_unit) * inverse_scale;
  compander.bend_at[0] = 1.125F / inverse_scale;
  compander.bend_at[1] = 1.9375F / inverse_scale;
  compander.outer_slope[0] = kLine3.code_per_unit * inverse_scale;
  compander.outer_slope[1] = kLine4.code_per_unit * inverse_scale;
  compander.outer_slope[2] = kLine5.code_per_unit * inverse_scale;
  return compander;
}

// The first sixteen planes of a coordinate: sign and magnitude.
DEVICE unsigned code_of(float coordinate, const Compander& compander) {
  constexpr Line kLine3 = compander_line(3);
  constexpr Line kLine4 = compander_line(4);
  constexpr Line kLine5 = compander_line(5);
  const float absolute = fabsf(coordinate);
  float code = absolute * compander.inner_slope;
  code = fused(fminf(absolute, compander.bend_at[0]), compander.bend[0], code);
  code = fused(fminf(absolute, compander.bend_at[1]), compander.bend[1], code);
  code = fminf(code, fused(absolute, compander.outer_slope[0], kLine3.code_offset));
  code = fminf(code, fused(absolute, compander.outer_slope[1], kLine4.code_offset));
  code = fminf(code, fused(absolute, compander.outer_slope[2], kLine5.code_offset));
  const unsigned magnitude = whole_of(fminf(code, kMaxCode));
  return (magnitude & 0x7FFFU) | (bits_of(coordinate) >> 16 & ~0x7FFFU);
}

// The line that a code lies on.
DEVICE Line line_of(float code) {
  Line found = compander_line(0);
  UNROLL
  for (unsigned i = 1; i < 6; ++i) {
    const Line line = compander_line(i);
    found = code >= line.first_code ? line : found;
  }
  return found;
}

// Planes 16 to 31, given the first sixteen.
DEVICE unsigned refinement_of(float coordinate, float inverse_scale, unsigned code16) {
  const float code = static_cast<float>(code16 & 0x7FFFU);
  const Line line = line_of(code);
  const float bound = code * line.unit_per_code + line.unit_offset;  // exact
  const float inside = (fabsf(coordinate) * inverse_scale - bound) * line.code_per_unit;
  return whole_of(fminf(fmaxf(inside * 65536.0F, 0.0F), 65535.0F));
}

// ------------------------------------------------------------------ columns

struct Column {
  unsigned packet;  // index in the message
  unsigned word;    // index in each plane of the packet
  unsigned words;   // per plane of the packet
  unsigned first;   // first coordinate within the row
  unsigned stride;  // distance between its runs
};

DEVICE Column column_at(const MessageShape& shape, unsigned row, unsigned log2_length,
                        unsigned number) {
  const unsigned slot = number / shape.quanta;
  const unsigned before = slot * shape.quanta;
  const unsigned all = (1U << log2_length) / 32;
  Column column;
  column.packet = row * shape.packets_per_row + slot;
  column.word = number - before;
  column.words = min(shape.quanta, all - before);
  const unsigned block = column.word / 4;
  column.first = before * 32 + block * 128 + column.word % 4 * 4;
  column.stride = min(128U, column.words * 32 - block * 128) / 8;
  return column;
}

// The upper and the lower of the two low bytes of four numbers, side by side.
struct BytePair {
  unsigned high;
  unsigned low;
};

DEVICE BytePair split_bytes(const unsigned* numbers) {
  const unsigned first = pick_bytes(numbers[0], numbers[1], 0x5410U);
  const unsigned second = pick_bytes(numbers[2], numbers[3], 0x5410U);
  return {pick_bytes(first, second, 0x7531U), pick_bytes(first, second, 0x6420U)};
}

template <unsigned kShift>
DEVICE void exchange_bits(unsigned& a, unsigned& b, unsigned mask) {
  const unsigned moved = ((a >> kShift) ^ b) & mask;
  b ^= moved;
  a ^= moved << kShift;
}

// Swaps v[j] bit k  <->  v[k] bit j in every byte.
DEVICE void transpose_bits(unsigned* v) {
  UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    exchange_bits<4>(v[i], v[i + 4], 0x0F0F0F0FU);
  }
  UNROLL
  for (unsigned i = 0; i < 8; i += 4) {
    exchange_bits<2>(v[i], v[i + 2], 0x33333333U);
    exchange_bits<2>(v[i + 1], v[i + 3], 0x33333333U);
  }
  UNROLL
  for (unsigned i = 0; i < 8; i += 2) {
    exchange_bits<1>(v[i], v[i + 1], 0x55555555U);
  }
}

}  // namespace spillway::gpu
