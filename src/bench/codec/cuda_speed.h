// SPDX-License-Identifier: Apache-2.0
//
// How fast the codes planes and thc are on a GPU, beside a copy of the same tensor from the device
// to itself in the same run. Throughput counts the tensor's bytes, whatever comes out; a copy's is
// the limit of whatever reads and writes as much.
//
// Each figure is the median of several batches, timed by the device's events; batches go round
// tensors that together are larger than any cache.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "gpu/device.h"

namespace spillway::bench {

struct CudaSpeedOptions {
  int ordinal = 0;
  std::vector<std::size_t> tensor_bytes = {std::size_t{64} << 20, std::size_t{256} << 20};
  int batches = 9;
  int launches = 16;  // of a batch
};

struct CudaSpeed {
  std::size_t tensor_bytes;
  std::string what;  // "copy", "rotation 2^13", "planes 8 bits, rows of 2^13"
  double encode_gigabytes_per_second;
  double decode_gigabytes_per_second;  // 0 where there is no way back
  double copy_gigabytes_per_second;    // of the same tensor in the same run
};

struct CudaSpeedResults {
  gpu::DeviceInfo device;
  std::vector<CudaSpeed> speeds;
};

base::Result<CudaSpeedResults> measure_cuda_speed(const CudaSpeedOptions& options);

}  // namespace spillway::bench
