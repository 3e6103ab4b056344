// SPDX-License-Identifier: Apache-2.0
//
// How often a row is rotated: until it looks Gaussian and fits the code's range
// (codec/row_encoder.cc).

namespace spillway::gpu {

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

}  // namespace spillway::gpu
