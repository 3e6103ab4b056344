// SPDX-License-Identifier: Apache-2.0
//
// Runs a block of the kernels on a CPU, so that tests compare its bits with the oracle's without a
// GPU. Each step runs one thread after the other, in either order. This file replaces
// kernels/device.cuh; all other sources are the ones a GPU runs.
//
// Use it from one thread at a time: the block is a static object.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/reduction.h"
#include "gpu/device_coder.h"
#include "gpu/kernels/arguments.h"

#define DEVICE inline
#define KERNEL inline void
#define UNROLL
#define UNROLL_4
#define UNROLL_8
#define SHARED_MEMORY spillway::gpu::emulated_block().memory

namespace spillway::gpu {

enum class ThreadOrder { kForward, kBackward };

struct EmulatedBlock {
  unsigned threads = 0;
  unsigned number = 0;
  ThreadOrder order = ThreadOrder::kForward;
  char* memory = nullptr;
};

inline EmulatedBlock& emulated_block() {
  static EmulatedBlock block;
  return block;
}

struct float4 {
  float x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

using std::fabs;
using std::max;
using std::min;
using std::sqrt;

inline float fabsf(float value) {
  return std::fabs(value);
}
inline float fminf(float a, float b) {
  return std::fmin(a, b);
}
inline float fmaxf(float a, float b) {
  return std::fmax(a, b);
}
inline int __clz(unsigned bits) {
  return std::countl_zero(bits);
}

template <typename Step>
void each_thread(Step step) {
  const EmulatedBlock& block = emulated_block();
  for (unsigned i = 0; i < block.threads; ++i) {
    step(block.order == ThreadOrder::kForward ? i : block.threads - 1 - i);
  }
}

inline unsigned thread_count() {
  return emulated_block().threads;
}
inline unsigned block_number() {
  return emulated_block().number;
}
inline unsigned bits_of(float value) {
  return std::bit_cast<unsigned>(value);
}
inline float float_of(unsigned bits) {
  return std::bit_cast<float>(bits);
}
inline double power_of_two(int exponent) {
  return std::ldexp(1.0, exponent);
}
inline float fused(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline unsigned whole_of(float number) {
  return static_cast<unsigned>(number);
}
inline unsigned pick_bytes(unsigned low, unsigned high, unsigned which) {
  const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
  unsigned picked = 0;
  for (unsigned i = 0; i < 4; ++i) {
    picked |= static_cast<unsigned>(bytes >> (8 * (which >> (4 * i) & 7U)) & 0xFFU) << (8 * i);
  }
  return picked;
}
inline void raise_to(unsigned* slot, unsigned value) {
  *slot = std::max(*slot, value);
}
inline void add_to(unsigned* slot, unsigned value) {
  *slot += value;
}
inline float float16_of(unsigned short bits) {
  return collective::float16_to_float(bits);
}
inline unsigned short to_float16(float value) {
  return collective::float_to_float16(value);
}

// Runs all blocks of a launch, one after the other. Shared memory starts with garbage.
template <typename Kernel, typename Arguments>
void run_on_cpu(Kernel kernel, const Launch& launch, const Arguments& arguments,
                ThreadOrder order = ThreadOrder::kForward) {
  std::vector<std::max_align_t> memory(launch.shared_bytes / sizeof(std::max_align_t) + 1);
  for (unsigned block = 0; block < launch.blocks; ++block) {
    std::fill_n(reinterpret_cast<char*>(memory.data()), launch.shared_bytes, char{0x5A});
    emulated_block() = {launch.threads, block, order, reinterpret_cast<char*>(memory.data())};
    kernel(arguments);
  }
}

}  // namespace spillway::gpu

// clang-format off
#include "gpu/kernels/codes.cuh"
#include "gpu/kernels/tile.cuh"
#include "gpu/kernels/tensor.cuh"
#include "gpu/kernels/encode.cuh"
#include "gpu/kernels/decode.cuh"
#include "gpu/kernels/levels.cuh"
// clang-format on

namespace spillway::gpu {

static_assert(sizeof(RowState) == 96, "launch_plan.cc says how much shared memory that is");

}  // namespace spillway::gpu
