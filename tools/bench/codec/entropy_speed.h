// SPDX-License-Identifier: Apache-2.0
//
// Size and speed of lossless codes for 8-bit numbers on one core, Spillway's and its rivals' in the
// same run. Throughput counts one byte per value.
//
// Spillway's coder appears twice: once like the rivals, and once with a receiver that counts
// symbols for the next table.
//
// Samples are gradients quantised to int8 by their largest magnitude, and synthetic distributions.
// Coders that keep a table learn it from another draw, or from the sample's other half.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/progress.h"

namespace spillway::bench {

struct EntropyOptions {
  std::size_t values = std::size_t{1} << 22;
  int repetitions = 9;       // the best one counts
  bool plain_rivals = true;  // include codec/reference: slow, not tuned
  std::string gradients;     // a folder of .f32 files; may be missing
};

struct EntropySample {
  std::string name;
  std::vector<std::int8_t> learned;  // stands for the step before
  std::vector<std::int8_t> values;
};
std::vector<EntropySample> entropy_samples(const EntropyOptions& options);

struct EntropySpeed {
  std::string sample;
  std::string coder;
  std::string target;   // vector instruction set; empty if it uses none
  double entropy_bits;  // per value
  double bits;
  double encode_gigabytes_per_second;
  double decode_gigabytes_per_second;
};

// One step of progress per sample.
std::vector<EntropySpeed> measure_entropy(const std::vector<EntropySample>& samples,
                                          const EntropyOptions& options, Progress& progress);

}  // namespace spillway::bench
