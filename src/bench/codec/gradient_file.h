// SPDX-License-Identifier: Apache-2.0
//
// Gradients from disk: a .f32 file is nothing but little-endian floats. experiments/gradients says
// how to dump your own.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace spillway::bench {

// At most this many values are taken; a tour or a benchmark needs no more.
inline constexpr std::size_t kMaxGradientValues = std::size_t{1} << 24;

base::Result<std::vector<float>> load_gradient(const std::string& path);

// The .f32 files of a folder in order of name; empty if there are none or the folder is missing.
std::vector<std::string> gradient_files(const std::string& folder);

}  // namespace spillway::bench
