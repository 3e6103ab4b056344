// SPDX-License-Identifier: Apache-2.0
//
// Speed of the codes planes and thc on a GPU, beside a device-to-device copy of the same tensor in
// the same run. Throughput counts the tensor's bytes, whatever the output size. The copy is the
// limit for any code that reads and writes as much.
//
// Each figure is the median of several batches, timed by device events. Batches cycle through
// tensors that together exceed any cache.
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
  int launches = 16;  // per batch
};

struct CudaSpeed {
  std::size_t tensor_bytes;
  std::string what;  // "copy", "rotation, rows of 2^13", "planes of float32, ..."
  double encode_gigabytes_per_second;
  double decode_gigabytes_per_second;  // 0 if there is no inverse
  double copy_gigabytes_per_second;    // for the same tensor in the same run
};

struct CudaSpeedResults {
  gpu::DeviceInfo device;
  std::vector<CudaSpeed> speeds;
};

base::Result<CudaSpeedResults> measure_cuda_speed(const CudaSpeedOptions& options);

}  // namespace spillway::bench
