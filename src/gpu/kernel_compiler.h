// SPDX-License-Identifier: Apache-2.0
//
// The kernels' sources, which are part of the library, as machine code of one kind of GPU: compiled
// by NVRTC the first time, kept in the user's cache folder, read from there afterwards.
//
// NVRTC is looked for where SPILLWAY_NVRTC says, where the loader looks (which finds one that
// PyTorch has loaded), and in /usr/local/cuda. The cache is ${SPILLWAY_CACHE_DIR}, else
// ${XDG_CACHE_HOME}/spillway, else ~/.cache/spillway; a file's name has a hash of the sources, the
// options, the compiler's version and the GPU's kind, so that nothing stale is ever loaded. A
// folder or file that is not this user's alone is not used (base/own_file.h). Without a folder of
// the user's that can be written, the kernels are compiled in every process.
//
// Stateless; any thread. Compiling takes seconds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/own_file.h"
#include "base/status.h"

namespace spillway::gpu {

// A larger file in the cache is not read.
inline constexpr std::size_t kMaxCodeBytes = std::size_t{64} << 20;

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

// Machine code that earlier processes of this user compiled. The GPU runs what it reads in this
// process's address space, so nothing comes from a folder or file that another user may write.
class KernelCache {
 public:
  // An empty name: nothing is kept. The folder is made if it is missing.
  explicit KernelCache(const std::string& folder)
      : folder_(!folder.empty() && base::prepare_own_folder(folder).ok() ? folder : "") {}

  bool is_usable() const { return !folder_.empty(); }
  // If it is there, can be trusted, and begins like machine code.
  std::optional<std::vector<char>> read(const std::string& name) const;
  // Whole or not at all: other processes may be at it, too.
  void keep(const std::string& name, const std::vector<char>& image) const;

 private:
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

// The folder; empty where there is none.
std::string cache_folder(const base::Environment& environment);

}  // namespace spillway::gpu
