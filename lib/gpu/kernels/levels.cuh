// SPDX-License-Identifier: Apache-2.0
//
// A tensor's rows to levels that can be added, packed into words, and sums of them back:
// codec/level_code.cc, level_decoder.cc and lanes.cc for many rows at a time, bit for bit.
// Supports only codes whose levels are all integers of the range; ranks send no others.

namespace spillway::gpu {

// The row-related part of a message's shape, for the shared functions.
DEVICE MessageShape shape_of_rows(unsigned long long values, unsigned row_log2) {
  MessageShape shape = {};
  shape.values = values;
  shape.row_log2 = row_log2;
  return shape;
}

DEVICE EncodeArguments loading(const LevelTensor& tensor, const RowRange& range) {
  EncodeArguments arguments = {};
  arguments.values = tensor.values;
  arguments.key = tensor.key;
  arguments.shape = shape_of_rows(tensor.count, tensor.row_log2);
  arguments.range = range;
  return arguments;
}

// codec::rotate_for_levels without the rotation.
template <Element kElement>
DEVICE void measure_rows(const MeasureArguments& arguments, char* memory) {
  char* rest = nullptr;
  const Tile tile = make_tile(arguments.range, memory, rest);
  load_tile<kElement>(tile, loading(arguments.tensor, arguments.range));
  measure(tile, reinterpret_cast<float*>(rest));
  meet();
  each_thread([&](unsigned thread) {
    for (unsigned row = thread; row < tile.rows; row += thread_count()) {
      const RowState& state = tile.states[row];
      if (state.phase == Phase::kRotating) {
        arguments.rows[tile.first + row] = {
            static_cast<float>(state.rms * power_of_two(state.exponent)), state.exponent};
      } else if (state.phase != Phase::kAbsent) {
        arguments.rows[tile.first + row] = {state.factor, 0};
      }
    }
  });
}

// Reads how each row is to be encoded or decoded.
DEVICE void open_level_rows(const Tile& tile, const LevelRow* rows) {
  each_thread([&](unsigned thread) {
    for (unsigned row = thread; row < tile.rows; row += thread_count()) {
      RowState& state = tile.states[row];
      if (state.phase == Phase::kAbsent) {
        continue;
      }
      const LevelRow given = rows[tile.first + row];
      state.factor = given.factor;
      state.exponent = given.exponent;
      state.phase = given.kind == LevelRowKind::kValues ? Phase::kRotating : Phase::kFilled;
      state.target = static_cast<unsigned>(given.kind);
    }
  });
}

DEVICE void divide_extremes(const Tile& tile) {
  each_thread([&](unsigned thread) {
    for (unsigned i = thread; i < tile.count; i += thread_count()) {
      const RowState& state = tile.state_of(i);
      if (state.phase == Phase::kRotating && state.exponent != 0) {
        *tile.at(i) = divided_by_power(*tile.at(i), state.exponent);
      }
    }
  });
}

// Rounds a coordinate at random to one of its two neighbouring levels; `draw` has 16 random bits.
DEVICE unsigned level_of(float coordinate, float factor, float range, unsigned draw,
                         unsigned& clipped) {
  const float x = fused(coordinate, factor, range * 0.5F);
  clipped += x < 0.0F || x > range ? 1 : 0;
  const float inside = fminf(fmaxf(x, 0.0F), range);
  const unsigned level = whole_of(inside);
  const float share = (static_cast<float>(draw) + 0.5F) * (1.0F / 65536.0F);
  return level + (inside - static_cast<float>(level) > share ? 1 : 0);
}

// Eight random blocks hold the draws of 64 coordinates. Word w of block b has the draw of
// coordinate 16 w + b in its low half and of 16 w + 8 + b in its high half. A thread handles one
// block.
DEVICE unsigned round_block(const Tile& tile, unsigned block, const RoundArguments& arguments) {
  constexpr unsigned kDitherDomain = 0x44495448U;  // "DITH"
  const unsigned row = tile.row_of(block * 8);
  const RowState& state = tile.states[row];
  const unsigned in_row = block - (row << (tile.log2_length - 3));
  const unsigned long long place =
      (static_cast<unsigned long long>(tile.first + row) << arguments.tensor.row_log2) +
      in_row / 8 * 64 + in_row % 8;
  const bool is_zero = state.target == static_cast<unsigned>(LevelRowKind::kNothing);
  const RandomBlock draws = random_block(
      arguments.tensor.key, {{in_row, tile.first + row, arguments.rank, kDitherDomain}});
  unsigned clipped = 0;
  UNROLL
  for (unsigned w = 0; w < 4; ++w) {
    UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned at = 16 * w + 8 * half;
      const float coordinate =
          state.phase == Phase::kRotating ? *tile.at(block / 8 * 64 + block % 8 + at) : 0.0F;
      const unsigned level = level_of(coordinate, state.factor, arguments.range_of_levels,
                                      draws.word[w] >> (16 * half) & 0xFFFFU, clipped);
      arguments.levels[place + at] = static_cast<unsigned short>(is_zero ? 0 : level);
    }
  }
  return is_zero ? 0 : clipped;
}

template <Element kElement>
DEVICE void round_rows(const RoundArguments& arguments, char* memory) {
  char* rest = nullptr;
  const Tile tile = make_tile(arguments.range, memory, rest);
  load_tile<kElement>(tile, loading(arguments.tensor, arguments.range));
  open_level_rows(tile, arguments.rows);
  divide_extremes(tile);
  transform<Entry::kFlip, Peaks::kIgnored>(tile);
  each_thread([&](unsigned thread) {
    unsigned clipped = 0;
    for (unsigned block = thread; block < tile.count / 8; block += thread_count()) {
      if (tile.state_of(block * 8).phase != Phase::kAbsent) {
        clipped += round_block(tile, block, arguments);
      }
    }
    if (clipped > 0) {
      add_to(arguments.clipped, clipped);
    }
  });
}

// One thread per word: lane k of word i in a chunk holds number k * kLaneWords + i.
DEVICE void pack_levels(const PackArguments& arguments) {
  each_thread([&](unsigned thread) {
    const unsigned long long place =
        static_cast<unsigned long long>(block_number()) * thread_count() + thread;
    if (place >= arguments.words_count) {
      return;
    }
    const unsigned long long chunk = place / kLaneWords;
    const unsigned long long first =
        chunk * arguments.lanes.lanes * kLaneWords + (place - chunk * kLaneWords);
    unsigned long long word = 0;
    for (unsigned lane = 0; lane < arguments.lanes.lanes; ++lane) {
      const unsigned long long number = first + lane * kLaneWords;
      const unsigned long long level =
          number < arguments.levels_count ? arguments.levels[number] : 0;
      word |= level << (lane * arguments.lanes.bits);
    }
    arguments.words[place] = word;
  });
}

// codec::decode_level_sums for one number.
DEVICE float mean_of_sum(const SumArguments& arguments, unsigned number) {
  const unsigned per_chunk = arguments.lanes.lanes * kLaneWords;
  const unsigned chunk = number / per_chunk;
  const unsigned inside = number - chunk * per_chunk;
  const unsigned lane = inside / kLaneWords;
  const ChunkShare share = arguments.chunks[chunk];
  const unsigned long long word =
      arguments.words[chunk * kLaneWords + (inside - lane * kLaneWords)];
  const unsigned long long mask = (1ULL << arguments.lanes.bits) - 1;
  const unsigned sum = static_cast<unsigned>(word >> (lane * arguments.lanes.bits) & mask);
  if (share.middle == 0) {
    return 0.0F;
  }
  return static_cast<float>(static_cast<int>(2 * sum - share.middle)) * share.unit;
}

// Undoes the rotation while storing into the tensor.
template <Element kElement>
DEVICE void store_means(const Tile& tile, const SumArguments& arguments) {
  const TensorPlace place = place_in<kElement>(
      arguments.tensor.values, shape_of_rows(arguments.tensor.count, arguments.tensor.row_log2),
      tile, arguments.range);
  each_thread([&](unsigned thread) {
    for (unsigned quad = thread; quad < tile.count / 4; quad += thread_count()) {
      const RowState& state = tile.state_of(quad * 4);
      if (state.phase == Phase::kAbsent) {
        continue;
      }
      const bool is_cleared = state.target == static_cast<unsigned>(LevelRowKind::kCleared);
      const float factor = is_cleared ? 0.0F : state.factor;
      float4 v = make_float4(factor, factor, factor, factor);
      if (state.phase == Phase::kRotating) {
        v = flipped(*reinterpret_cast<const float4*>(tile.at(quad * 4)), factor,
                    tile.signs[quad / 8], quad * 4 % 32);
      }
      store_quad<kElement>(place, const_cast<void*>(arguments.tensor.values),
                           place.first + quad * 4, v, is_cleared ? Store::kWrite : arguments.store);
    }
  });
}

template <Element kElement>
DEVICE void decode_sums(const SumArguments& arguments, char* memory) {
  char* rest = nullptr;
  const Tile tile = make_tile(arguments.range, memory, rest);
  open_level_rows(tile, arguments.rows);
  const unsigned first = tile.first << arguments.tensor.row_log2;
  each_thread([&](unsigned thread) {
    for (unsigned i = thread; i < tile.count; i += thread_count()) {
      if (tile.state_of(i).phase == Phase::kRotating) {
        *tile.at(i) = mean_of_sum(arguments, first + i);
      }
    }
    draw_signs(tile, arguments.tensor.key, thread);
  });
  transform<Entry::kPlain, Peaks::kIgnored>(tile);
  store_means<kElement>(tile, arguments);
}

}  // namespace spillway::gpu

KERNEL spillway_measure_float32(spillway::gpu::MeasureArguments arguments) {
  spillway::gpu::measure_rows<spillway::gpu::Element::kFloat32>(arguments, SHARED_MEMORY);
}

KERNEL spillway_measure_bfloat16(spillway::gpu::MeasureArguments arguments) {
  spillway::gpu::measure_rows<spillway::gpu::Element::kBfloat16>(arguments, SHARED_MEMORY);
}

KERNEL spillway_measure_float16(spillway::gpu::MeasureArguments arguments) {
  spillway::gpu::measure_rows<spillway::gpu::Element::kFloat16>(arguments, SHARED_MEMORY);
}

KERNEL spillway_round_float32(spillway::gpu::RoundArguments arguments) {
  spillway::gpu::round_rows<spillway::gpu::Element::kFloat32>(arguments, SHARED_MEMORY);
}

KERNEL spillway_round_bfloat16(spillway::gpu::RoundArguments arguments) {
  spillway::gpu::round_rows<spillway::gpu::Element::kBfloat16>(arguments, SHARED_MEMORY);
}

KERNEL spillway_round_float16(spillway::gpu::RoundArguments arguments) {
  spillway::gpu::round_rows<spillway::gpu::Element::kFloat16>(arguments, SHARED_MEMORY);
}

KERNEL spillway_pack_levels(spillway::gpu::PackArguments arguments) {
  spillway::gpu::pack_levels(arguments);
}

KERNEL spillway_decode_sums_float32(spillway::gpu::SumArguments arguments) {
  spillway::gpu::decode_sums<spillway::gpu::Element::kFloat32>(arguments, SHARED_MEMORY);
}

KERNEL spillway_decode_sums_bfloat16(spillway::gpu::SumArguments arguments) {
  spillway::gpu::decode_sums<spillway::gpu::Element::kBfloat16>(arguments, SHARED_MEMORY);
}

KERNEL spillway_decode_sums_float16(spillway::gpu::SumArguments arguments) {
  spillway::gpu::decode_sums<spillway::gpu::Element::kFloat16>(arguments, SHARED_MEMORY);
}
