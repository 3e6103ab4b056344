// SPDX-License-Identifier: Apache-2.0
//
// A tensor's rows to planes: codec/row_encoder.cc for many rows at a time, bit for bit.
//
//   energy        the sum of a row's squares, added in the codec's order, and what follows from it
//   rotation      a row is rotated until it looks Gaussian and fits the code's range
//   planes        the codes of its coordinates

namespace spillway::gpu {

// ------------------------------------------------------------------ energy

DEVICE float4 times(float4 v, float factor) {
  return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

// Ignores NaNs.
DEVICE float largest_of(float4 v) {
  return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

// The factor of a coordinate's row; 1 in rows outside the range.
DEVICE float factor_at(const Tile& tile, unsigned coordinate, const float* factors) {
  const unsigned row = tile.row_of(coordinate);
  return tile.states[row].phase == Phase::kAbsent ? 1.0F : factors[tile.first + row];
}

// Loads values into the tile, records their largest magnitudes without NaNs, and draws the signs of
// the first round.
template <Element kElement>
DEVICE void load_tile(const Tile& tile, const EncodeArguments& arguments) {
  const TensorPlace place =
      place_in<kElement>(arguments.values, arguments.shape, tile, arguments.range);
  each_thread([&](unsigned thread) {
    float largest = 0.0F;
    load_values<kElement>(tile, place, arguments.values, thread, [&](unsigned quad, float4 v) {
      if (arguments.factors != nullptr) {
        v = times(v, factor_at(tile, quad * 4, arguments.factors));
      }
      *reinterpret_cast<float4*>(tile.at(quad * 4)) = v;
      largest = fmaxf(largest, largest_of(v));
      if (tile.rows > 1) {  // neighbouring threads load values of the same row
        raise_to(&tile.state_of(quad * 4).largest, bits_of(largest));
        largest = 0.0F;
      }
    });
    if (tile.rows == 1) {
      raise_to(&tile.states[0].largest, bits_of(largest));
    }
    draw_signs(tile, arguments.key, thread);
  });
}

inline constexpr unsigned kLanes = 16;  // partial sums of squares per row

// Sums one lane. Its values come in pairs, 32 coordinates apart; the number of pairs is a multiple
// of eight. The next values are loaded while the current ones are added.
DEVICE float sum_of_squares(const float* values, unsigned pairs) {
  constexpr unsigned kAtOnce = 8;
  float next[2 * kAtOnce];
  UNROLL
  for (unsigned i = 0; i < 2 * kAtOnce; ++i) {
    next[i] = values[i / 2 * padded(32) + i % 2 * kLanes];
  }
  float sum = 0.0F;
  for (unsigned pair = 0; pair < pairs; pair += kAtOnce) {
    float these[2 * kAtOnce];
    const float* const from = values + min(pair + kAtOnce, pairs - kAtOnce) * padded(32);
    UNROLL
    for (unsigned i = 0; i < 2 * kAtOnce; ++i) {
      these[i] = next[i] * next[i];
      next[i] = from[i / 2 * padded(32) + i % 2 * kLanes];
    }
    UNROLL
    for (unsigned i = 0; i < 2 * kAtOnce; ++i) {
      sum = sum + these[i];
    }
  }
  return sum;
}

// Sums the squares of rows to be measured: lane k adds every sixteenth value, in order.
DEVICE void sum_lanes(const Tile& tile, float* lanes) {
  each_thread([&](unsigned thread) {
    for (unsigned item = thread; item < tile.rows * kLanes; item += thread_count()) {
      const unsigned row = item / kLanes;
      if (tile.states[row].phase != Phase::kMeasuring) {
        continue;
      }
      const float* const values = tile.at((row << tile.log2_length) + item % kLanes);
      lanes[item] = sum_of_squares(values, 1U << (tile.log2_length - 5));
    }
  });
}

// codec::combine_lanes: adds the upper half to the lower until one is left.
DEVICE float combine(const float* lanes) {
  float eight[8];
  UNROLL
  for (unsigned i = 0; i < 8; ++i) {
    eight[i] = lanes[i] + lanes[i + 8];
  }
  const float first = (eight[0] + eight[4]) + (eight[2] + eight[6]);
  const float second = (eight[1] + eight[5]) + (eight[3] + eight[7]);
  return first + second;
}

DEVICE int exponent_of(unsigned bits) {
  return bits >= 0x00800000U ? static_cast<int>(bits >> 23) - 127
                             : -118 - static_cast<int>(__clz(bits));
}

DEVICE void fill(RowState& state, float scale) {
  state.phase = Phase::kFilled;
  state.factor = scale;
}

// Decides from a row's energy. Extreme rows are measured again, divided by a power of two.
DEVICE void judge_energy(RowState& state, float sum_squares, unsigned log2_length) {
  constexpr float kMaxEnergyShare = 1.0F / 64.0F;
  const bool is_safe = sum_squares >= 1e-24F && sum_squares <= 1e+30F;
  if (!is_safe) {
    if (state.largest >= 0x7F800000U || sum_squares != sum_squares) {
      fill(state, float_of(0x7FC00000U));
    } else if (state.largest == 0) {
      fill(state, 0.0F);
    } else {
      state.exponent = exponent_of(state.largest);  // then safe: its largest value is 1 to 2
    }
    return;
  }
  const float largest = float_of(state.largest);
  state.phase = Phase::kRotating;
  state.target = largest * largest > kMaxEnergyShare * sum_squares ? 2 : 1;
  state.rms = sqrt(static_cast<double>(sum_squares) / power_of_two(static_cast<int>(log2_length)));
  state.scale = state.rms;
}

DEVICE float divided_by_power(float value, int exponent) {
  return static_cast<float>(static_cast<double>(value) * power_of_two(-exponent));
}

// Divides rows that must be measured again by the power of two of their largest value.
DEVICE void rescale(const Tile& tile) {
  each_thread([&](unsigned thread) {
    for (unsigned i = thread; i < tile.count; i += thread_count()) {
      const RowState& state = tile.state_of(i);
      if (state.phase == Phase::kMeasuring) {
        *tile.at(i) = divided_by_power(*tile.at(i), state.exponent);
      }
    }
  });
  each_thread([&](unsigned thread) {
    for (unsigned row = thread; row < tile.rows; row += thread_count()) {
      RowState& state = tile.states[row];
      if (state.phase == Phase::kMeasuring) {
        state.largest = bits_of(divided_by_power(float_of(state.largest), state.exponent));
      }
    }
  });
}

DEVICE void measure(const Tile& tile, float* lanes) {
  for (;;) {
    sum_lanes(tile, lanes);
    each_thread([&](unsigned thread) {
      for (unsigned row = thread; row < tile.rows; row += thread_count()) {
        if (tile.states[row].phase == Phase::kMeasuring) {
          judge_energy(tile.states[row], combine(lanes + row * kLanes), tile.log2_length);
        }
      }
    });
    if (!tile.has(Phase::kMeasuring)) {
      return;
    }
    rescale(tile);
  }
}

// ------------------------------------------------------------------ rotation

DEVICE double rotation_gain(unsigned log2_length, unsigned rotations) {
  return sqrt(power_of_two(static_cast<int>(log2_length * rotations)));
}

DEVICE void set_scale(RowState& state, unsigned log2_length, double scale) {
  state.scale = scale;
  state.inverse_scale =
      static_cast<float>(1.0 / (scale * rotation_gain(log2_length, state.rotations)));
  state.compander = scaled_compander(state.inverse_scale);
}

inline constexpr unsigned kCounters = 128;  // per row's sample, by magnitude cell

// A cell's term of a sample's chi-square.
DEVICE double test_term(unsigned observed, unsigned cell, unsigned sample,
                        const CodeTables& tables) {
  const double difference =
      static_cast<double>(observed) - tables.cell_mass[cell] * static_cast<double>(sample);
  return difference * difference * tables.inverse_mass[cell];
}

// codec::looks_gaussian for a sample's counts. `terms` are the cells' terms if already known.
DEVICE bool looks_gaussian(const unsigned* counts, const double* terms, unsigned sample,
                           const CodeTables& tables) {
  double weighted_squares = 0.0;
  unsigned inner = 0;
  UNROLL_8
  for (unsigned cell = 0; cell < kTestCells - 1; ++cell) {
    weighted_squares +=
        terms != nullptr ? terms[cell] : test_term(counts[cell], cell, sample, tables);
    inner += counts[cell];
  }
  weighted_squares += test_term(sample - inner, kTestCells - 1, sample, tables);
  return weighted_squares <= tables.threshold * static_cast<double>(sample);
}

// A factor within 1/64 of 1, the same as the encoder's.
DEVICE double jitter(unsigned long long key, unsigned row) {
  constexpr unsigned kJitterDomain = 0x4A495454U;  // "JITT"
  const RandomBlock block = random_block(key, {{row, 0, 0, kJitterDomain}});
  const float draw = static_cast<float>(block.word[0] >> 8) * (1.0F / 16777216.0F);
  return 1.0 + (static_cast<double>(draw) - 0.5) / 32.0;
}

// Decides whether a rotated row is coded as it is, rotated again, or scaled wider.
DEVICE void judge_rotated(const Tile& tile, unsigned row, const unsigned* counts,
                          const double* terms, unsigned sample, const EncodeArguments& arguments) {
  constexpr unsigned kMaxRotations = 3;
  constexpr double kWidenedMagnitude = 0.999 * static_cast<double>(kMaxMagnitude);
  RowState& state = tile.states[row];
  const float peak = float_of(state.peak);
  state.phase = Phase::kDone;
  if (state.rotations < kMaxRotations) {
    const bool in_range = peak * state.inverse_scale < kMaxMagnitude;
    if (!in_range || !looks_gaussian(counts, terms, sample, *arguments.tables)) {
      state.phase = Phase::kRotating;
      ++state.target;
    }
    return;
  }
  for (float reach = peak * state.inverse_scale; !(reach < kMaxMagnitude);
       reach = peak * state.inverse_scale) {
    set_scale(state, tile.log2_length,
              state.scale * (static_cast<double>(reach) / kWidenedMagnitude));
  }
}

// Counts a round. Rows that have reached their target get the scale for the test.
DEVICE void end_round(const Tile& tile, unsigned long long key) {
  each_thread([&](unsigned thread) {
    for (unsigned row = thread; row < tile.rows; row += thread_count()) {
      RowState& state = tile.states[row];
      if (state.phase != Phase::kRotating || ++state.rotations < state.target) {
        continue;
      }
      state.phase = Phase::kTesting;
      const double scale =
          state.rotations == 3 ? state.rms * jitter(key, tile.first + row) : state.rms;
      set_scale(state, tile.log2_length, scale);
    }
  });
}

// Tests the first eight planes of each tested row's sample: its first coordinates.
DEVICE void test_rows(const Tile& tile, unsigned* counts, const EncodeArguments& arguments) {
  const unsigned length = 1U << tile.log2_length;
  const unsigned sample = min(4096U, max(256U, length / 8));
  each_thread([&](unsigned thread) {
    for (unsigned i = thread; i < tile.rows * kCounters; i += thread_count()) {
      counts[i] = 0;
    }
  });
  each_thread([&](unsigned thread) {
    for (unsigned i = thread; i < tile.rows * sample; i += thread_count()) {
      const unsigned row = i / sample;
      const RowState& state = tile.states[row];
      if (state.phase == Phase::kTesting) {
        const float coordinate = *tile.at((row << tile.log2_length) + i % sample);
        const unsigned code = code_of(coordinate, state.compander);
        add_to(counts + row * kCounters + (code >> 8 & 0x7FU), 1);
      }
    }
  });
  // For a single row all threads compute the terms; otherwise each thread handles its row's.
  double* const terms = tile.rows == 1 ? reinterpret_cast<double*>(counts + kCounters) : nullptr;
  if (terms != nullptr) {
    each_thread([&](unsigned thread) {
      for (unsigned cell = thread; cell < kTestCells - 1; cell += thread_count()) {
        terms[cell] = test_term(counts[cell], cell, sample, *arguments.tables);
      }
    });
  }
  each_thread([&](unsigned thread) {
    for (unsigned row = thread; row < tile.rows; row += thread_count()) {
      if (tile.states[row].phase == Phase::kTesting) {
        judge_rotated(tile, row, counts + row * kCounters, terms, sample, arguments);
      }
    }
  });
}

DEVICE void rotate_rows(const Tile& tile, unsigned* counts, const EncodeArguments& arguments) {
  while (tile.has(Phase::kRotating)) {
    transform<Entry::kFlip, Peaks::kNoted>(tile);
    end_round(tile, arguments.key);
    if (tile.has(Phase::kTesting)) {
      test_rows(tile, counts, arguments);
    }
    if (tile.has(Phase::kRotating)) {
      each_thread([&](unsigned thread) {
        for (unsigned row = thread; row < tile.rows; row += thread_count()) {
          tile.states[row].peak =
              tile.states[row].phase == Phase::kRotating ? 0 : tile.states[row].peak;
        }
        draw_signs(tile, arguments.key, thread);
      });
    }
  }
}

// ------------------------------------------------------------------ planes

// Writes row headers, with scales back in the row's original magnitude.
DEVICE void write_headers(const Tile& tile, RowCode* rows) {
  each_thread([&](unsigned thread) {
    for (unsigned row = thread; row < tile.rows; row += thread_count()) {
      RowState& state = tile.states[row];
      if (state.phase == Phase::kAbsent) {
        continue;
      }
      if (state.phase == Phase::kDone) {
        const double scale =
            static_cast<double>(static_cast<float>(state.scale)) * power_of_two(state.exponent);
        const float most = float_of(0x7F7FFFFFU);
        const float header = scale < static_cast<double>(most) ? static_cast<float>(scale) : most;
        if (header > 0.0F) {
          rows[tile.first + row] = {header, state.rotations};
          continue;
        }
        fill(state, 0.0F);
      }
      rows[tile.first + row] = {state.factor, 0};
    }
  });
}

// Codes of a column, one byte of each coordinate's code per array; `high` holds planes 0..7.
struct ColumnCodes {
  unsigned high[8];
  unsigned low[8];
  unsigned third[8];
  unsigned fourth[8];
};

DEVICE void code_column(const Tile& tile, unsigned first, unsigned stride, const RowState& state,
                        unsigned planes, ColumnCodes& codes) {
  const Compander compander = state.compander;
  UNROLL
  for (unsigned k = 0; k < 8; ++k) {
    const float4 quad = *reinterpret_cast<const float4*>(tile.at(first + k * stride));
    const float v[4] = {quad.x, quad.y, quad.z, quad.w};
    unsigned numbers[4];
    UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      numbers[i] = code_of(v[i], compander);
    }
    const BytePair codes16 = split_bytes(numbers);
    codes.high[k] = codes16.high;
    codes.low[k] = codes16.low;
    if (planes > 16) {
      UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        numbers[i] = refinement_of(v[i], state.inverse_scale, numbers[i]);
      }
      const BytePair finer = split_bytes(numbers);
      codes.third[k] = finer.high;
      codes.fourth[k] = finer.low;
    }
  }
}

// Writes up to eight planes, starting with `plane`.
DEVICE void write_eight(unsigned* v, unsigned plane, unsigned planes, const Column& column,
                        unsigned* packet) {
  if (plane >= planes) {
    return;
  }
  transpose_bits(v);
  UNROLL
  for (unsigned i = 0; i < 8; ++i) {
    if (plane + i < planes) {
      packet[(plane + i) * column.words + column.word] = v[7 - i];
    }
  }
}

DEVICE void write_planes(const Tile& tile, const EncodeArguments& arguments) {
  const MessageShape& shape = arguments.shape;
  each_thread([&](unsigned thread) {
    for (unsigned number = thread; number < tile.count / 32; number += thread_count()) {
      const unsigned row = tile.row_of(number * 32);
      const RowState& state = tile.states[row];
      if (state.phase == Phase::kAbsent) {
        continue;
      }
      const unsigned before = row << (tile.log2_length - 5);
      const Column column = column_at(shape, tile.first + row, tile.log2_length, number - before);
      unsigned* const packet = reinterpret_cast<unsigned*>(
          arguments.payload + static_cast<unsigned long long>(column.packet) * shape.packet_stride);
      ColumnCodes codes = {};
      if (state.phase == Phase::kDone) {
        code_column(tile, (row << tile.log2_length) + column.first, column.stride, state,
                    shape.planes, codes);
      }
      write_eight(codes.high, 0, shape.planes, column, packet);
      write_eight(codes.low, 8, shape.planes, column, packet);
      write_eight(codes.third, 16, shape.planes, column, packet);
      write_eight(codes.fourth, 24, shape.planes, column, packet);
    }
  });
}

template <Element kElement>
DEVICE void encode_rows(const EncodeArguments& arguments, char* memory) {
  char* rest = nullptr;
  const Tile tile = make_tile(arguments.range, memory, rest);
  // The sums of lanes are no longer needed when samples are counted.
  float* const lanes = reinterpret_cast<float*>(rest);
  unsigned* const counts = reinterpret_cast<unsigned*>(rest);
  load_tile<kElement>(tile, arguments);
  measure(tile, lanes);
  rotate_rows(tile, counts, arguments);
  meet();
  write_headers(tile, arguments.rows);
  write_planes(tile, arguments);
}

}  // namespace spillway::gpu

KERNEL spillway_encode_float32(spillway::gpu::EncodeArguments arguments) {
  spillway::gpu::encode_rows<spillway::gpu::Element::kFloat32>(arguments, SHARED_MEMORY);
}

KERNEL spillway_encode_bfloat16(spillway::gpu::EncodeArguments arguments) {
  spillway::gpu::encode_rows<spillway::gpu::Element::kBfloat16>(arguments, SHARED_MEMORY);
}

KERNEL spillway_encode_float16(spillway::gpu::EncodeArguments arguments) {
  spillway::gpu::encode_rows<spillway::gpu::Element::kFloat16>(arguments, SHARED_MEMORY);
}
