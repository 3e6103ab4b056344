// SPDX-License-Identifier: Apache-2.0
//
// Compiles the kernels' sources, which are part of the library, for one GPU architecture. NVRTC
// compiles them the first time; later processes read the machine code from the user's cache folder.
//
// NVRTC is searched at SPILLWAY_NVRTC, then where the loader looks (which finds one that PyTorch
// has loaded), then in /usr/local/cuda. The cache is ${SPILLWAY_CACHE_DIR}, else
// ${XDG_CACHE_HOME}/spillway, else ~/.cache/spillway. File names contain a hash of the sources, the
// options, the compiler's version and the architecture, so stale code is never loaded. A folder or
// file that other users may write is ignored (base/own_file.h). Without a writable folder of this
// user, every process compiles the kernels.
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

// A larger file in the cache is ignored.
inline constexpr std::size_t kMaxCodeBytes = std::size_t{64} << 20;

// The origin of machine code.
enum class CodeOrigin { kCache, kCompiler };

struct KernelCode {
  std::vector<char> image;
  CodeOrigin origin = CodeOrigin::kCompiler;
  double seconds = 0.0;  // time to read or compile it
  std::string compiler;  // "NVRTC 13.0"
};

// The embedded sources.
std::string_view kernel_source();

// Compiles for compute capability major.minor. The error names what is missing or quotes the
// compiler.
base::Result<KernelCode> compile_kernels(int major, int minor,
                                         const base::Environment& environment);

// Machine code compiled by earlier processes of this user. The GPU runs it in this process's
// address space, so files and folders that another user may write are never used.
class KernelCache {
 public:
  // Creates the folder if it is missing. With an empty name nothing is cached.
  explicit KernelCache(const std::string& folder)
      : folder_(!folder.empty() && base::prepare_own_folder(folder).ok() ? folder : "") {}

  bool is_usable() const { return !folder_.empty(); }
  // Returns the file if it exists, can be trusted and starts like machine code.
  std::optional<std::vector<char>> read(const std::string& name) const;
  // Writes the file atomically, because other processes may use it at the same time.
  void keep(const std::string& name, const std::vector<char>& image) const;

 private:
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

// The cache folder; empty if there is none.
std::string cache_folder(const base::Environment& environment);

}  // namespace spillway::gpu
