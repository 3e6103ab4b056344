// SPDX-License-Identifier: Apache-2.0
//
// The kernels' sources, which are part of the library, as machine code of one kind of GPU: compiled
// by NVRTC the first time, kept in the user's cache folder, read from there afterwards.
//
// NVRTC is looked for where SPILLWAY_NVRTC says, where the loader looks (which finds one that
// PyTorch has loaded), and in /usr/local/cuda. The cache is ${SPILLWAY_CACHE_DIR}, else
// ${XDG_CACHE_HOME}/spillway, else ~/.cache/spillway; a file's name has a hash of the sources, the
// options, the compiler's version and the GPU's kind, so that nothing stale is ever loaded. Only
// files of this user that nobody else may write are. Without a folder that can be written, the
// kernels are compiled in every process.
//
// Stateless; any thread. Compiling takes seconds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/status.h"

namespace spillway::gpu {

// Where machine code came from.
enum class CodeOrigin { kCache, kCompiler };

struct KernelCode {
  std::vector<char> image;
  CodeOrigin origin = CodeOrigin::kCompiler;
  double seconds = 0.0;  // that reading or compiling it took
  std::string compiler;  // "NVRTC 13.0"
};

// Of the embedded sources.
std::string_view kernel_source();

// For compute capability major.minor. The error says what is missing, or what the compiler says.
base::Result<KernelCode> compile_kernels(int major, int minor,
                                         const base::Environment& environment);

// What was kept in a file, if it can be trusted: a file of this user that nobody else may write,
// and that begins like machine code.
std::optional<std::vector<char>> read_kept_code(const std::string& path);

// The folder; empty where there is none.
std::string cache_folder(const base::Environment& environment);

}  // namespace spillway::gpu
