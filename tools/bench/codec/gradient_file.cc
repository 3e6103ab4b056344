// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/gradient_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace spillway::bench {

base::Result<std::vector<float>> load_gradient(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    return base::invalid_argument(fmt::format("cannot open {}: give a file of raw floats", path));
  }
  const auto size = static_cast<std::size_t>(file.tellg());
  if (size == 0 || size % sizeof(float) != 0) {
    return base::invalid_argument(fmt::format(
        "{} has {} bytes; a gradient file is a whole number of 4-byte floats", path, size));
  }
  std::vector<float> values(std::min(size / sizeof(float), kMaxGradientValues));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  if (!file) {
    return base::invalid_argument(fmt::format("cannot read {}", path));
  }
  return values;
}

std::vector<std::string> gradient_files(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".f32") {
      paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace spillway::bench
