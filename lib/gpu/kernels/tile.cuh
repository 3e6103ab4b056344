// SPDX-License-Identifier: Apache-2.0
//
// A tile: the rows of one block in shared memory, and their rotation. The arithmetic matches
// codec/kernels.cc to the last bit.
//
// Coordinate i lies at padded(i): four unused floats follow each 32. This avoids bank conflicts
// among groups of four neighbours, among every 32nd coordinate, and among columns (codes.cuh).

namespace spillway::gpu {

DEVICE constexpr unsigned padded(unsigned index) {
  return index + (index >> 5) * 4;
}

enum class Phase : unsigned {
  kAbsent,     // the tile has no such row
  kMeasuring,  // its energy is unknown or must be measured again
  kRotating,   // another round follows
  kTesting,    // rotated; not yet tested for looking Gaussian
  kDone,       // ready to be coded
  kFilled,     // all coordinates are equal: nothing to rotate
};

struct alignas(16) RowState {
  Compander compander;  // with the row's scale
  double rms;
  double scale;
  Phase phase;
  unsigned largest;  // bits of the largest magnitude of its values
  unsigned peak;     // the same for its coordinates
  unsigned rotations;
  unsigned target;   // rotations before the next test
  unsigned arrived;  // coordinates with at least one plane
  int exponent;      // its values were divided by 2 to this power
  float sum_squares;
  float inverse_scale;
  float factor;  // scale of a decoded row, or the value of a filled one
};

struct Tile {
  float* values;
  unsigned* signs;   // one word per 32 coordinates
  RowState* states;  // one per row
  unsigned log2_length;
  unsigned count;  // of coordinates
  unsigned rows;
  unsigned first;  // index of its first row

  DEVICE unsigned row_of(unsigned coordinate) const { return coordinate >> log2_length; }
  DEVICE RowState& state_of(unsigned coordinate) const { return states[row_of(coordinate)]; }
  DEVICE float* at(unsigned coordinate) const { return values + padded(coordinate); }
  DEVICE bool has(Phase phase) const {
    bool found = false;
    for (unsigned row = 0; row < rows; ++row) {
      found = found || states[row].phase == phase;
    }
    return found;
  }
};

// A barrier: all threads have read what the next step overwrites.
DEVICE void meet() {
  each_thread([](unsigned) {});
}

// Shared memory begins with the tile; `rest` points behind it.
DEVICE Tile make_tile(const RowRange& range, char* memory, char*& rest) {
  Tile tile;
  tile.log2_length = range.log2_length;
  tile.count = 1U << range.tile_log2;
  tile.rows = 1U << (range.tile_log2 - range.log2_length);
  const unsigned before = block_number() * tile.rows;
  tile.first = range.first + before;
  tile.states = reinterpret_cast<RowState*>(memory);
  tile.values = reinterpret_cast<float*>(tile.states + tile.rows);
  tile.signs = reinterpret_cast<unsigned*>(tile.values + padded(tile.count));
  rest = reinterpret_cast<char*>(tile.signs + tile.count / 32);
  each_thread([&](unsigned thread) {
    for (unsigned row = thread; row < tile.rows; row += thread_count()) {
      RowState state = {};
      state.phase = before + row < range.count ? Phase::kMeasuring : Phase::kAbsent;
      state.target = 1;
      tile.states[row] = state;
    }
  });
  return tile;
}

struct RandomBlock {
  unsigned word[4];
};

// base::random_block.
DEVICE RandomBlock random_block(unsigned long long key, RandomBlock counter) {
  unsigned key0 = static_cast<unsigned>(key);
  unsigned key1 = static_cast<unsigned>(key >> 32);
  unsigned* const w = counter.word;
  UNROLL
  for (int round = 0; round < 10; ++round) {
    const unsigned long long product0 = 0xD2511F53ULL * w[0];
    const unsigned long long product1 = 0xCD9E8D57ULL * w[2];
    w[0] = static_cast<unsigned>(product1 >> 32) ^ w[1] ^ key0;
    w[1] = static_cast<unsigned>(product1);
    w[2] = static_cast<unsigned>(product0 >> 32) ^ w[3] ^ key1;
    w[3] = static_cast<unsigned>(product0);
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return counter;
}

// The signs of each row's next round, like codec::draw_signs. `thread` is that of the current step.
DEVICE void draw_signs(const Tile& tile, unsigned long long key, unsigned thread) {
  constexpr unsigned kSignDomain = 0x5349474EU;  // "SIGN"
  const unsigned blocks_per_row = 1U << (tile.log2_length - 7);
  for (unsigned block = thread; block < tile.count / 128; block += thread_count()) {
    const unsigned row = tile.row_of(block * 128);
    const RandomBlock words = random_block(key, {{block & (blocks_per_row - 1), tile.first + row,
                                                  tile.states[row].rotations, kSignDomain}});
    *reinterpret_cast<uint4*>(tile.signs + block * 4) =
        make_uint4(words.word[0], words.word[1], words.word[2], words.word[3]);
  }
}

template <unsigned kLevels>
DEVICE void butterflies(float* v) {
  UNROLL
  for (unsigned half = 1; half < 1U << kLevels; half *= 2) {
    UNROLL
    for (unsigned i = 0; i < 1U << kLevels; ++i) {
      if ((i & half) == 0) {
        const float a = v[i];
        const float b = v[i + half];
        v[i] = a + b;
        v[i + half] = a - b;
      }
    }
  }
}

// Whether values flip their signs before the butterflies.
enum class Entry { kPlain, kFlip };

// Levels 0 to 4 of rotating rows: 32 neighbours, which share a word of signs.
template <Entry kEntry>
DEVICE void transform_neighbours(const Tile& tile) {
  each_thread([&](unsigned thread) {
    for (unsigned group = thread; group < tile.count / 32; group += thread_count()) {
      if (tile.state_of(group * 32).phase != Phase::kRotating) {
        continue;
      }
      float4* const memory = reinterpret_cast<float4*>(tile.at(group * 32));
      float v[32];
      UNROLL
      for (unsigned i = 0; i < 8; ++i) {
        *reinterpret_cast<float4*>(v + 4 * i) = memory[i];
      }
      if (kEntry == Entry::kFlip) {
        const unsigned signs = tile.signs[group];
        UNROLL
        for (unsigned i = 0; i < 32; ++i) {
          v[i] = float_of(bits_of(v[i]) ^ (signs << (31 - i) & 0x80000000U));
        }
      }
      butterflies<5>(v);
      UNROLL
      for (unsigned i = 0; i < 8; ++i) {
        memory[i] = *reinterpret_cast<float4*>(v + 4 * i);
      }
    }
  });
}

// Whether to record the largest magnitude of a row's coordinates.
enum class Peaks { kIgnored, kNoted };

// kLevels levels starting at kFirst, which must be at least 5.
template <unsigned kFirst, unsigned kLevels, Peaks kPeaks>
DEVICE void transform_levels(const Tile& tile) {
  each_thread([&](unsigned thread) {
    constexpr unsigned kStep = padded(1U << kFirst);
    for (unsigned group = thread; group < tile.count >> kLevels; group += thread_count()) {
      const unsigned low = group & ((1U << kFirst) - 1);
      const unsigned first = (group >> kFirst) << (kFirst + kLevels) | low;
      RowState& state = tile.state_of(first);
      if (state.phase != Phase::kRotating) {
        continue;
      }
      float* const memory = tile.at(first);
      float v[1U << kLevels];
      UNROLL
      for (unsigned i = 0; i < 1U << kLevels; ++i) {
        v[i] = memory[i * kStep];
      }
      butterflies<kLevels>(v);
      float peak = 0.0F;
      UNROLL
      for (unsigned i = 0; i < 1U << kLevels; ++i) {
        memory[i * kStep] = v[i];
        if (kPeaks == Peaks::kNoted) {
          peak = fmaxf(peak, fabsf(v[i]));
        }
      }
      if (kPeaks == Peaks::kNoted) {
        raise_to(&state.peak, bits_of(peak));
      }
    }
  });
}

// The Hadamard transform of all rotating rows: five levels among neighbours, then the rest in one
// or two passes.
template <Entry kEntry, Peaks kPeaks>
DEVICE void transform(const Tile& tile) {
  transform_neighbours<kEntry>(tile);
  switch (tile.log2_length) {
    case 8:
      transform_levels<5, 3, kPeaks>(tile);
      break;
    case 9:
      transform_levels<5, 4, kPeaks>(tile);
      break;
    case 10:
      transform_levels<5, 5, kPeaks>(tile);
      break;
    case 11:
      transform_levels<5, 3, Peaks::kIgnored>(tile);
      transform_levels<8, 3, kPeaks>(tile);
      break;
    case 12:
      transform_levels<5, 4, Peaks::kIgnored>(tile);
      transform_levels<9, 3, kPeaks>(tile);
      break;
    case 13:
      transform_levels<5, 4, Peaks::kIgnored>(tile);
      transform_levels<9, 4, kPeaks>(tile);
      break;
    case 14:
      transform_levels<5, 5, Peaks::kIgnored>(tile);
      transform_levels<10, 4, kPeaks>(tile);
      break;
    default:
      transform_levels<5, 5, Peaks::kIgnored>(tile);
      transform_levels<10, 5, kPeaks>(tile);
      break;
  }
}

}  // namespace spillway::gpu
