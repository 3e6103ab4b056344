// SPDX-License-Identifier: Apache-2.0
//
// How many bits lossless codes of 8-bit numbers take and how fast they are on one core, Spillway's
// beside its rivals in the same run. Throughput counts one byte per value.
//
// Spillway's coder twice: as the rivals do, and with a receiver that counts symbols for the next
// table.
//
// Samples are gradients quantised to int8 by their largest magnitude, and drawn distributions. The
// tables of coders that keep one are of another draw, or of the sample's other half.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/progress.h"

namespace spillway::bench {

struct EntropyOptions {
  std::size_t values = std::size_t{1} << 22;
  int repetitions = 9;       // the best one counts
  bool plain_rivals = true;  // codec/reference: slow, not tuned
  std::string gradients;     // a folder of .f32 files; may be missing
};

struct EntropySample {
  std::string name;
  std::vector<std::int8_t> learned;  // what the step before sent
  std::vector<std::int8_t> values;
};
std::vector<EntropySample> entropy_samples(const EntropyOptions& options);

struct EntropySpeed {
  std::string sample;
  std::string coder;
  std::string target;   // of vector code; empty where there is none
  double entropy_bits;  // per value
  double bits;
  double encode_gigabytes_per_second;
  double decode_gigabytes_per_second;
};

// One step of progress per sample.
std::vector<EntropySpeed> measure_entropy(const std::vector<EntropySample>& samples,
                                          const EntropyOptions& options, Progress& progress);

}  // namespace spillway::bench
