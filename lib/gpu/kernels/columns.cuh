// SPDX-License-Identifier: Apache-2.0
//
// Columns: a column is the 32 coordinates whose bits form one 32-bit word of each plane. A thread
// codes or decodes a column alone, and neighbouring threads access neighbouring words.
//
// Planes are formed from blocks of m coordinates (m = 128, or the rest of a packet). Bit k of byte
// i belongs to coordinate k * (m / 8) + i (codec/kernels.h). So word w of a block holds four
// neighbours from each of eight runs: coordinates k * (m / 8) + 4 w + 0..3.

namespace spillway::gpu {

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
