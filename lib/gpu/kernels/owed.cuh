// SPDX-License-Identifier: Apache-2.0
//
// Adds the error-feedback residual to a tensor, and zeroes values if one of them is not finite.
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
        arguments.to[first + i] = arguments.owed != nullptr ? own + arguments.owed[first + i] : own;
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

KERNEL spillway_forget_if_found(spillway::gpu::FiniteArguments arguments) {
  if (*arguments.found != 0) {
    spillway_visit(arguments, [](float& value) { value = 0.0F; });
  }
}
