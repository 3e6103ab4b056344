// SPDX-License-Identifier: Apache-2.0
//
// Planes back into a tensor's rows, whatever part of them arrived: codec/row_decoder.cc for many
// rows at a time, bit for bit.

namespace spillway::gpu {

// The planes of a column, and how many of them arrived for each of its four bytes.
struct ArrivedColumn {
  unsigned planes[4];
  ColumnCodes codes;

  DEVICE unsigned most() const { return max(max(planes[0], planes[1]), max(planes[2], planes[3])); }
  DEVICE unsigned fewest() const {
    return min(min(planes[0], planes[1]), min(planes[2], planes[3]));
  }
};

// The word of a plane; in a trimmed plane only its bytes that arrived.
DEVICE unsigned arrived_word(const unsigned* packet, const Column& column, unsigned plane,
                             unsigned bytes) {
  const unsigned begin = (plane * column.words + column.word) * 4;
  if (begin >= bytes) {
    return 0;
  }
  const unsigned word = packet[plane * column.words + column.word];
  return begin + 4 <= bytes ? word : word & ((1U << (bytes - begin) * 8) - 1);
}

DEVICE void read_eight(const unsigned* packet, const Column& column, unsigned plane,
                       unsigned planes, unsigned bytes, unsigned* v) {
  if (plane >= planes) {
    return;
  }
  UNROLL
  for (unsigned i = 0; i < 8; ++i) {
    v[7 - i] = plane + i < planes ? arrived_word(packet, column, plane + i, bytes) : 0;
  }
  transpose_bits(v);
}

DEVICE unsigned received_of(const DecodeArguments& arguments, unsigned packet) {
  return arguments.received != nullptr ? arguments.received[packet] : 0xFFFFU;
}

DEVICE ArrivedColumn read_column(const DecodeArguments& arguments, const Column& column) {
  const MessageShape& shape = arguments.shape;
  const unsigned plane_bytes = column.words * 4;
  const unsigned bytes = min(received_of(arguments, column.packet), plane_bytes * shape.planes);
  const unsigned whole = bytes / plane_bytes;
  const unsigned extra = bytes - whole * plane_bytes;
  ArrivedColumn arrived = {};
  UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    arrived.planes[i] = whole + (column.word * 4 + i < extra ? 1 : 0);
  }
  const unsigned* const packet = reinterpret_cast<const unsigned*>(
      arguments.payload + static_cast<unsigned long long>(column.packet) * shape.packet_stride);
  const unsigned planes = arrived.most();
  read_eight(packet, column, 0, planes, bytes, arrived.codes.high);
  read_eight(packet, column, 8, planes, bytes, arrived.codes.low);
  read_eight(packet, column, 16, planes, bytes, arrived.codes.third);
  read_eight(packet, column, 24, planes, bytes, arrived.codes.fourth);
  return arrived;
}

DEVICE float with_sign(unsigned sign_bit, float magnitude) {
  return float_of(bits_of(magnitude) ^ sign_bit << 31);
}

// Value for 1 to 8 planes, given as a byte.
DEVICE float prefix_value(const float* magnitudes, unsigned byte, unsigned planes) {
  const unsigned cell = (byte & 0x7FU) >> (8 - planes);
  return with_sign(byte >> 7, magnitudes[(1U << (planes - 1)) - 1 + cell]);
}

// Value for 9 to 16 planes. A number below 2^23 becomes a float as the last digits of 2^23 plus
// itself. `beyond` is 2^23 less half a cell, so the difference is the cell's middle, exactly.
DEVICE float companded_value(unsigned code, float beyond) {
  const float middle = float_of((code & 0x7FFFU) | 0x4B000000U) - beyond;
  float magnitude = 0.0F;
  UNROLL
  for (unsigned i = 0; i < 6; ++i) {
    const Line line = compander_line(i);
    magnitude = fmaxf(magnitude, fused(middle, line.unit_per_code, line.unit_offset));  // exact
  }
  return with_sign(code >> 15, magnitude);
}

DEVICE float beyond_middle(unsigned planes) {
  return 8388608.0F - 0.5F * static_cast<float>(1U << (16 - planes));
}

// Value for 17 to 32 planes.
DEVICE float refined_value(unsigned code, unsigned finer, unsigned planes) {
  const float half_cell = 0.5F * static_cast<float>(1U << (32 - planes));
  const float whole = static_cast<float>(code & 0x7FFFU);
  const float inside = static_cast<float>(finer) + half_cell;
  const Line line = line_of(whole);
  const float bound = whole * line.unit_per_code + line.unit_offset;  // exact
  const float offset = inside * line.unit_per_code;                   // exact, then rounded once
  return with_sign(code >> 15, bound + offset * (1.0F / 65536.0F));
}

DEVICE unsigned byte_of(unsigned word, unsigned number) {
  return word >> (8 * number) & 0xFFU;
}

DEVICE float value_of(const ArrivedColumn& arrived, unsigned run, unsigned number,
                      const float* magnitudes) {
  const unsigned planes = arrived.planes[number];
  const unsigned high = byte_of(arrived.codes.high[run], number);
  if (planes == 0) {
    return 0.0F;
  }
  if (planes <= 8) {
    return prefix_value(magnitudes, high, planes);
  }
  const unsigned code = high << 8 | byte_of(arrived.codes.low[run], number);
  if (planes <= 16) {
    return companded_value(code, beyond_middle(planes));
  }
  const unsigned finer =
      byte_of(arrived.codes.third[run], number) << 8 | byte_of(arrived.codes.fourth[run], number);
  return refined_value(code, finer, planes);
}

// The values of a run's four coordinates. In nearly all columns all bytes have equally many planes,
// so the first two branches are the ones that matter.
DEVICE float4 values_of_run(const ArrivedColumn& arrived, unsigned run, const float* magnitudes) {
  float v[4];
  const unsigned planes = arrived.planes[0];
  if (arrived.fewest() == arrived.most() && planes > 0 && planes <= 8) {
    UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      v[i] = prefix_value(magnitudes, byte_of(arrived.codes.high[run], i), planes);
    }
  } else if (arrived.fewest() == arrived.most() && planes > 8 && planes <= 16) {
    const float beyond = beyond_middle(planes);
    const unsigned high = arrived.codes.high[run];
    const unsigned low = arrived.codes.low[run];
    const unsigned front = pick_bytes(low, high, 0x5140U);  // two codes in each
    const unsigned back = pick_bytes(low, high, 0x7362U);
    v[0] = companded_value(front & 0xFFFFU, beyond);
    v[1] = companded_value(front >> 16, beyond);
    v[2] = companded_value(back & 0xFFFFU, beyond);
    v[3] = companded_value(back >> 16, beyond);
  } else {
    UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      v[i] = value_of(arrived, run, i, magnitudes);
    }
  }
  return make_float4(v[0], v[1], v[2], v[3]);
}

// Estimates all coordinates, in units of their rows' scales, and counts those with an estimate, per
// row.
DEVICE void read_planes(const Tile& tile, const float* magnitudes,
                        const DecodeArguments& arguments) {
  each_thread([&](unsigned thread) {
    for (unsigned number = thread; number < tile.count / 32; number += thread_count()) {
      const unsigned row = tile.row_of(number * 32);
      RowState& state = tile.states[row];
      if (state.phase == Phase::kAbsent) {
        continue;
      }
      const unsigned before = row << (tile.log2_length - 5);
      const Column column =
          column_at(arguments.shape, tile.first + row, tile.log2_length, number - before);
      if (column.word == 0) {
        add_to(&state.arrived, min(received_of(arguments, column.packet) * 8, column.words * 32));
      }
      const ArrivedColumn arrived = read_column(arguments, column);
      const unsigned first = (row << tile.log2_length) + column.first;
      UNROLL
      for (unsigned run = 0; run < 8; ++run) {
        *reinterpret_cast<float4*>(tile.at(first + run * column.stride)) =
            values_of_run(arrived, run, magnitudes);
      }
    }
  });
}

// Reads the row headers and copies `magnitudes` to fast memory.
DEVICE void open_rows(const Tile& tile, const DecodeArguments& arguments, float* magnitudes) {
  each_thread([&](unsigned thread) {
    for (unsigned i = thread; i < kPrefixMagnitudes; i += thread_count()) {
      magnitudes[i] = arguments.tables->magnitudes[arguments.estimate & 1U][i];
    }
    for (unsigned row = thread; row < tile.rows; row += thread_count()) {
      if (tile.states[row].phase != Phase::kAbsent) {
        tile.states[row].factor = arguments.rows[tile.first + row].scale;
        tile.states[row].target = min(max(arguments.rows[tile.first + row].rotations, 1U), 3U);
      }
    }
  });
}

// codec::finish_row: computes the factor that makes up for missing coordinates, including the last
// inverse rotation's. Some rows get one value instead.
DEVICE void judge_arrived(const Tile& tile, const DecodeArguments& arguments) {
  each_thread([&](unsigned thread) {
    for (unsigned row = thread; row < tile.rows; row += thread_count()) {
      RowState& state = tile.states[row];
      if (state.phase == Phase::kAbsent) {
        continue;
      }
      if (state.arrived == 0 || state.factor == 0.0F || state.factor != state.factor) {
        fill(state, state.arrived == 0 ? 0.0F : state.factor);
        continue;
      }
      double factor = static_cast<double>(state.factor);
      if (arguments.estimate == 0) {
        factor *=
            power_of_two(static_cast<int>(tile.log2_length)) / static_cast<double>(state.arrived);
      }
      const double normalised = 1.0 / rotation_gain(tile.log2_length, 1);
      const double rescale = static_cast<double>(static_cast<float>(factor));
      state.factor = static_cast<float>(normalised * rescale);
      state.phase = Phase::kTesting;
    }
  });
}

// Selects the rows that have this round to undo, and draws its signs.
DEVICE void begin_round(const Tile& tile, unsigned round, unsigned long long key) {
  each_thread([&](unsigned thread) {
    for (unsigned row = thread; row < tile.rows; row += thread_count()) {
      RowState& state = tile.states[row];
      if (state.phase == Phase::kTesting && state.target > round) {
        state.phase = Phase::kRotating;
      }
      state.rotations = round;
    }
  });
  each_thread([&](unsigned thread) { draw_signs(tile, key, thread); });
}

DEVICE float4 flipped(float4 v, float factor, unsigned signs, unsigned shift) {
  const unsigned bits = signs >> shift;
  return make_float4(float_of(bits_of(v.x * factor) ^ (bits << 31)),
                     float_of(bits_of(v.y * factor) ^ (bits << 30 & 0x80000000U)),
                     float_of(bits_of(v.z * factor) ^ (bits << 29 & 0x80000000U)),
                     float_of(bits_of(v.w * factor) ^ (bits << 28 & 0x80000000U)));
}

// Undoes all rounds after the first, in place.
DEVICE void undo_later_rounds(const Tile& tile, const DecodeArguments& arguments) {
  const float step = static_cast<float>(1.0 / rotation_gain(tile.log2_length, 1));
  unsigned rounds = 0;
  for (unsigned row = 0; row < tile.rows; ++row) {
    const Phase phase = tile.states[row].phase;
    const bool turns = phase != Phase::kAbsent && phase != Phase::kFilled;
    rounds = max(rounds, turns ? tile.states[row].target : 0U);
  }
  meet();
  for (unsigned round = rounds; round-- > 1;) {
    begin_round(tile, round, arguments.key);
    transform<Entry::kPlain, Peaks::kIgnored>(tile);
    each_thread([&](unsigned thread) {
      for (unsigned quad = thread; quad < tile.count / 4; quad += thread_count()) {
        if (tile.state_of(quad * 4).phase == Phase::kRotating) {
          float4* const at = reinterpret_cast<float4*>(tile.at(quad * 4));
          *at = flipped(*at, step, tile.signs[quad / 8], quad * 4 % 32);
        }
      }
    });
  }
}

// Undoes the first round while storing into the tensor.
template <Element kElement>
DEVICE void store_tile(const Tile& tile, const DecodeArguments& arguments) {
  const TensorPlace place =
      place_in<kElement>(arguments.values, arguments.shape, tile, arguments.range);
  each_thread([&](unsigned thread) {
    for (unsigned quad = thread; quad < tile.count / 4; quad += thread_count()) {
      const RowState& state = tile.state_of(quad * 4);
      if (state.phase == Phase::kAbsent ||
          (state.arrived == 0 && arguments.store != Store::kWrite)) {
        continue;
      }
      const float factor = state.factor;
      float4 v = make_float4(factor, factor, factor, factor);
      if (state.phase != Phase::kFilled) {
        v = flipped(*reinterpret_cast<const float4*>(tile.at(quad * 4)), factor,
                    tile.signs[quad / 8], quad * 4 % 32);
      }
      store_quad<kElement>(place, arguments.values, place.first + quad * 4, v, arguments.store);
    }
  });
}

template <Element kElement>
DEVICE void decode_rows(const DecodeArguments& arguments, char* memory) {
  char* rest = nullptr;
  const Tile tile = make_tile(arguments.range, memory, rest);
  float* const magnitudes = reinterpret_cast<float*>(rest);
  open_rows(tile, arguments, magnitudes);
  read_planes(tile, magnitudes, arguments);
  judge_arrived(tile, arguments);
  undo_later_rounds(tile, arguments);
  begin_round(tile, 0, arguments.key);
  transform<Entry::kPlain, Peaks::kIgnored>(tile);
  store_tile<kElement>(tile, arguments);
}

// One unnormalised round of all rows.
DEVICE void rotate_once(const RotateArguments& arguments, char* memory) {
  char* rest = nullptr;
  const Tile tile = make_tile(arguments.range, memory, rest);
  MessageShape shape = {};
  shape.values = static_cast<unsigned long long>(arguments.range.first + arguments.range.count)
                 << tile.log2_length;
  shape.row_log2 = tile.log2_length;
  const TensorPlace place =
      place_in<Element::kFloat32>(arguments.from, shape, tile, arguments.range);
  each_thread([&](unsigned thread) {
    load_values<Element::kFloat32>(
        tile, place, arguments.from, thread,
        [&](unsigned quad, float4 v) { *reinterpret_cast<float4*>(tile.at(quad * 4)) = v; });
    draw_signs(tile, arguments.key, thread);
  });
  each_thread([&](unsigned thread) {
    for (unsigned row = thread; row < tile.rows; row += thread_count()) {
      RowState& state = tile.states[row];
      state.phase = state.phase == Phase::kAbsent ? Phase::kAbsent : Phase::kRotating;
    }
  });
  transform<Entry::kFlip, Peaks::kIgnored>(tile);
  each_thread([&](unsigned thread) {
    for (unsigned quad = thread; quad < tile.count / 4; quad += thread_count()) {
      store_quad<Element::kFloat32>(place, arguments.to, place.first + quad * 4,
                                    *reinterpret_cast<const float4*>(tile.at(quad * 4)),
                                    Store::kWrite);
    }
  });
}

}  // namespace spillway::gpu

KERNEL spillway_decode_float32(spillway::gpu::DecodeArguments arguments) {
  spillway::gpu::decode_rows<spillway::gpu::Element::kFloat32>(arguments, SHARED_MEMORY);
}

KERNEL spillway_decode_bfloat16(spillway::gpu::DecodeArguments arguments) {
  spillway::gpu::decode_rows<spillway::gpu::Element::kBfloat16>(arguments, SHARED_MEMORY);
}

KERNEL spillway_decode_float16(spillway::gpu::DecodeArguments arguments) {
  spillway::gpu::decode_rows<spillway::gpu::Element::kFloat16>(arguments, SHARED_MEMORY);
}

KERNEL spillway_rotate(spillway::gpu::RotateArguments arguments) {
  spillway::gpu::rotate_once(arguments, SHARED_MEMORY);
}
