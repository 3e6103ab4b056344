// SPDX-License-Identifier: Apache-2.0
//
// A tensor's rows to planes: codec/row_encoder.cc for many rows at a time, bit for bit.

namespace spillway::gpu {

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
