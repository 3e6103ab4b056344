// SPDX-License-Identifier: Apache-2.0
//
// Speed of the codecs on one core, beside memcpy of the same tensor in the same run. Throughput
// counts the tensor's bytes (4 per value), whatever the wire carries.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "codec/kernels.h"
#include "codec/reference/reference_codec.h"
#include "tools/bench/progress.h"
#include "wire/packet_auth.h"

namespace spillway::bench {

struct SpeedOptions {
  std::size_t values = std::size_t{1} << 24;  // 64 MiB: like a model's gradients, not in a cache
  int repetitions = 9;  // the best one counts, because noise only slows a run down
};

struct HadamardSpeed {
  std::string target;
  unsigned row_log2;
  double gigabytes_per_second;
};

struct CodecSpeed {
  std::string codec;
  std::string target;
  double encode_gigabytes_per_second;
  double decode_gigabytes_per_second;
  double wire_bits_per_value;  // UDP payload: headers and checks included
};

// One code on one tensor. `work` is as long as `values` and keeps the decoded values, from which
// callers compute the error.
struct SpeedRun {
  const codec::Kernels& kernels;
  std::span<const float> values;
  std::span<float> work;
  int repetitions;
};

double memcpy_rate(std::span<const float> from, std::span<float> to, int repetitions);
// The whole path: rotate, quantise, planes, packets with checks; and back.
CodecSpeed planes_speed(const SpeedRun& run, unsigned precision,
                        wire::Protection protection = wire::Protection::kTags);
// Plain code, whatever the run's kernels are.
CodecSpeed reference_speed(const SpeedRun& run, const codec::reference::ReferenceCodec& codec);

struct SpeedResults {
  double memcpy_gigabytes_per_second = 0.0;
  std::vector<HadamardSpeed> hadamard;
  std::vector<CodecSpeed> codecs;
};

SpeedResults measure_speed(const SpeedOptions& options, Progress& progress);
std::size_t speed_steps();

}  // namespace spillway::bench
