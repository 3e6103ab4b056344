// SPDX-License-Identifier: Apache-2.0
//
// The device's own functions: macros and intrinsics that a CPU build replaces (block_testing.h).
//
// Kernels are written in steps: each_thread() runs a step for every thread of the block and ends
// with a barrier. Between steps all data is in shared memory. The same sources therefore run on a
// CPU, one thread after the other. The order of threads within a step must not matter.

#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(1024)

extern __shared__ __align__(16) char SHARED_MEMORY[];

#define UNROLL _Pragma("unroll")
#define UNROLL_8 _Pragma("unroll 8")

namespace spillway::gpu {

template <typename Step>
DEVICE void each_thread(Step step) {
  step(threadIdx.x);
  __syncthreads();
}

DEVICE unsigned thread_count() {
  return blockDim.x;
}

DEVICE unsigned block_number() {
  return blockIdx.x;
}

DEVICE unsigned bits_of(float value) {
  return __float_as_uint(value);
}

DEVICE float float_of(unsigned bits) {
  return __uint_as_float(bits);
}

DEVICE double power_of_two(int exponent) {
  return __longlong_as_double(static_cast<long long>(1023 + exponent) << 52);
}

DEVICE float fused(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}

// Rounds a number from 0 to 2^23 - 1 down.
DEVICE unsigned whole_of(float number) {
  return __float_as_uint(__fadd_rz(number, 8388608.0F)) & 0x7FFFFFU;
}

// Picks four of the eight bytes of `low` and `high`; the digits of `which` name them, lowest first.
DEVICE unsigned pick_bytes(unsigned low, unsigned high, unsigned which) {
  return __byte_perm(low, high, which);
}

// Atomic maximum. All threads of a warp must call this with the same `slot`.
DEVICE void raise_to(unsigned* slot, unsigned value) {
#if __CUDA_ARCH__ >= 800
  value = __reduce_max_sync(0xFFFFFFFFU, value);
#else
  for (unsigned distance = 16; distance > 0; distance /= 2) {
    value = max(value, __shfl_xor_sync(0xFFFFFFFFU, value, distance));
  }
#endif
  if (threadIdx.x % 32 == 0) {
    atomicMax(slot, value);
  }
}

DEVICE void add_to(unsigned* slot, unsigned value) {
  atomicAdd(slot, value);
}

DEVICE float float16_of(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// Every NaN becomes one quiet NaN.
DEVICE unsigned short to_float16(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return value != value ? static_cast<unsigned short>(0x7E00U) : bits;
}

}  // namespace spillway::gpu
