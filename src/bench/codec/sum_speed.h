// SPDX-License-Identifier: Apache-2.0
//
// How fast one rank codes what can be added, and decodes sums: values to words and back, as for a
// group of eight.
#pragma once

#include <span>
#include <vector>

#include "bench/codec/speed.h"
#include "codec/kernels.h"

namespace spillway::bench {

// `work` is as long as `values`, whole rows both.
std::vector<CodecSpeed> sum_speeds(const codec::Kernels& kernels, std::span<const float> values,
                                   std::span<float> work, int repetitions);

}  // namespace spillway::bench
