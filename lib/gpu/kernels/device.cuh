// SPDX-License-Identifier: Apache-2.0
//
// The first of the kernel sources on a device: macros that a CPU build defines differently.

#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(1024)

extern __shared__ __align__(16) char SHARED_MEMORY[];

#define UNROLL _Pragma("unroll")
#define UNROLL_8 _Pragma("unroll 8")
