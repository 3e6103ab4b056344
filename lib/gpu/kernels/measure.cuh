// SPDX-License-Identifier: Apache-2.0
//
// The energy of a row: the sum of its squares, added in the codec's order, and what follows from it
// (codec/row_encoder.cc).

namespace spillway::gpu {

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

}  // namespace spillway::gpu
