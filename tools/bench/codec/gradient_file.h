// SPDX-License-Identifier: Apache-2.0
//
// Loads gradients from disk: a .f32 file holds little-endian floats and nothing else.
// experiments/gradients explains how to dump your own.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace spillway::bench {

// Limit on the values read; a tour or a benchmark needs no more.
inline constexpr std::size_t kMaxGradientValues = std::size_t{1} << 24;

base::Result<std::vector<float>> load_gradient(const std::string& path);

// The .f32 files of a folder, sorted by name; empty if there are none or the folder is missing.
std::vector<std::string> gradient_files(const std::string& folder);

}  // namespace spillway::bench
