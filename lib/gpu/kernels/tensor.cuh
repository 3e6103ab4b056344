// SPDX-License-Identifier: Apache-2.0
//
// Access to a tensor's elements: float32, bfloat16 and float16, at any alignment, up to the
// tensor's end. Loads them into a tile and stores them back; adds the residual of error feedback;
// clears values if one of them is not finite.

namespace spillway::gpu {

template <Element kElement>
DEVICE float load_one(const void* values, unsigned long long index) {
  if (kElement == Element::kFloat32) {
    return static_cast<const float*>(values)[index];
  }
  const unsigned short bits = static_cast<const unsigned short*>(values)[index];
  return kElement == Element::kBfloat16 ? float_of(static_cast<unsigned>(bits) << 16)
                                        : float16_of(bits);
}

// Four neighbours; the address must be a multiple of their size.
template <Element kElement>
DEVICE float4 load_four(const void* values, unsigned long long index) {
  if (kElement == Element::kFloat32) {
    return *reinterpret_cast<const float4*>(static_cast<const float*>(values) + index);
  }
  const uint2 bits =
      *reinterpret_cast<const uint2*>(static_cast<const unsigned short*>(values) + index);
  if (kElement == Element::kBfloat16) {
    return make_float4(float_of(bits.x << 16), float_of(bits.x & 0xFFFF0000U),
                       float_of(bits.y << 16), float_of(bits.y & 0xFFFF0000U));
  }
  return make_float4(float16_of(static_cast<unsigned short>(bits.x)),
                     float16_of(static_cast<unsigned short>(bits.x >> 16)),
                     float16_of(static_cast<unsigned short>(bits.y)),
                     float16_of(static_cast<unsigned short>(bits.y >> 16)));
}

inline constexpr unsigned kElementBytes[] = {4, 2, 2};

// Where a tile's values lie in a tensor. Rows are contiguous. If all rows of a tile exist, full and
// aligned, they form one run that is moved four values at a time.
struct TensorPlace {
  unsigned long long first;   // index of the tile's first value
  unsigned long long length;  // of the tensor
  bool is_aligned;
  bool is_full;
};

template <Element kElement>
DEVICE TensorPlace place_in(const void* values, const MessageShape& shape, const Tile& tile,
                            const RowRange& range) {
  const unsigned long long quad = 4ULL * kElementBytes[static_cast<unsigned>(kElement)];
  TensorPlace place;
  place.first = static_cast<unsigned long long>(tile.first) << shape.row_log2;
  place.length = shape.values;
  place.is_aligned = reinterpret_cast<unsigned long long>(values) % quad == 0;
  place.is_full = place.is_aligned && place.first + tile.count <= place.length &&
                  tile.first + tile.rows <= range.first + range.count;
  return place;
}

// Values of coordinates 4 quad .. 4 quad + 3; zeros behind the tensor's end and in rows outside the
// range.
template <Element kElement>
DEVICE float4 load_quad(const Tile& tile, const TensorPlace& place, const void* values,
                        unsigned quad) {
  const unsigned long long index = place.first + quad * 4;
  if (place.is_full) {
    return load_four<kElement>(values, index);
  }
  if (tile.state_of(quad * 4).phase == Phase::kAbsent) {
    return make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  }
  float v[4];
  UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    v[i] = index + i < place.length ? load_one<kElement>(values, index + i) : 0.0F;
  }
  return make_float4(v[0], v[1], v[2], v[3]);
}

// Loads values with several loads in flight; calls `take` with each four neighbours and their
// index.
template <Element kElement, typename Take>
DEVICE void load_values(const Tile& tile, const TensorPlace& place, const void* values,
                        unsigned thread, Take take) {
  constexpr unsigned kAtOnce = 8;
  const unsigned quads = tile.count / 4;
  for (unsigned first = thread; first < quads; first += kAtOnce * thread_count()) {
    float4 v[kAtOnce];
    UNROLL
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const unsigned quad = first + i * thread_count();
      if (quad < quads) {
        v[i] = load_quad<kElement>(tile, place, values, quad);
      }
    }
    UNROLL
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const unsigned quad = first + i * thread_count();
      if (quad < quads) {
        take(quad, v[i]);
      }
    }
  }
}

DEVICE unsigned short to_bfloat16(float value) {
  const unsigned bits = bits_of(value);
  const unsigned rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
  return static_cast<unsigned short>(value != value ? 0x7FC0U : rounded);
}

template <Element kElement>
DEVICE void store_one(void* values, unsigned long long index, float value) {
  if (kElement == Element::kFloat32) {
    static_cast<float*>(values)[index] = value;
  } else {
    static_cast<unsigned short*>(values)[index] =
        kElement == Element::kBfloat16 ? to_bfloat16(value) : to_float16(value);
  }
}

template <Element kElement>
DEVICE void store_four(void* values, unsigned long long index, float4 v) {
  if (kElement == Element::kFloat32) {
    *reinterpret_cast<float4*>(static_cast<float*>(values) + index) = v;
    return;
  }
  const auto pair = [](float low, float high) {
    const unsigned a = kElement == Element::kBfloat16 ? to_bfloat16(low) : to_float16(low);
    const unsigned b = kElement == Element::kBfloat16 ? to_bfloat16(high) : to_float16(high);
    return a | b << 16;
  };
  *reinterpret_cast<uint2*>(static_cast<unsigned short*>(values) + index) =
      make_uint2(pair(v.x, v.y), pair(v.z, v.w));
}

DEVICE float stored(float before, float value, Store store) {
  return store == Store::kAdd ? before + value : before - value;
}

DEVICE float4 stored(float4 before, float4 v, Store store) {
  return make_float4(stored(before.x, v.x, store), stored(before.y, v.y, store),
                     stored(before.z, v.z, store), stored(before.w, v.w, store));
}

// Stores four neighbours up to the tensor's end, or combines them with the old values.
template <Element kElement>
DEVICE void store_quad(const TensorPlace& place, void* values, unsigned long long index, float4 v,
                       Store store) {
  if (place.is_full) {
    store_four<kElement>(
        values, index,
        store == Store::kWrite ? v : stored(load_four<kElement>(values, index), v, store));
    return;
  }
  const float each[4] = {v.x, v.y, v.z, v.w};
  UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    if (index + i < place.length) {
      store_one<kElement>(values, index + i,
                          store == Store::kWrite
                              ? each[i]
                              : stored(load_one<kElement>(values, index + i), each[i], store));
    }
  }
}

}  // namespace spillway::gpu

// ------------------------------------------------------------------ residuals
//
// Each thread handles four values.

template <spillway::gpu::Element kElement>
DEVICE void spillway_widen(const spillway::gpu::WidenArguments& arguments) {
  spillway::gpu::each_thread([&](unsigned thread) {
    const unsigned long long block = spillway::gpu::block_number();
    const unsigned long long first = (block * spillway::gpu::thread_count() + thread) * 4;
    UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      if (first + i < arguments.count) {
        const float own = spillway::gpu::load_one<kElement>(arguments.from, first + i);
        arguments.to[first + i] =
            arguments.residual != nullptr ? own + arguments.residual[first + i] : own;
      }
    }
  });
}

KERNEL spillway_widen_float32(spillway::gpu::WidenArguments arguments) {
  spillway_widen<spillway::gpu::Element::kFloat32>(arguments);
}

KERNEL spillway_widen_bfloat16(spillway::gpu::WidenArguments arguments) {
  spillway_widen<spillway::gpu::Element::kBfloat16>(arguments);
}

KERNEL spillway_widen_float16(spillway::gpu::WidenArguments arguments) {
  spillway_widen<spillway::gpu::Element::kFloat16>(arguments);
}

// Visits a thread's four values.
template <typename Visit>
DEVICE void spillway_visit(const spillway::gpu::FiniteArguments& arguments, Visit visit) {
  spillway::gpu::each_thread([&](unsigned thread) {
    const unsigned long long block = spillway::gpu::block_number();
    const unsigned long long first = (block * spillway::gpu::thread_count() + thread) * 4;
    for (unsigned i = 0; i < 4; ++i) {
      if (first + i < arguments.count) {
        visit(arguments.values[first + i]);
      }
    }
  });
}

KERNEL spillway_find_not_finite(spillway::gpu::FiniteArguments arguments) {
  spillway_visit(arguments, [&](float value) {
    if ((spillway::gpu::bits_of(value) & 0x7F800000U) == 0x7F800000U) {
      *arguments.found = 1;
    }
  });
}

KERNEL spillway_clear_if_found(spillway::gpu::FiniteArguments arguments) {
  if (*arguments.found != 0) {
    spillway_visit(arguments, [](float& value) { value = 0.0F; });
  }
}
