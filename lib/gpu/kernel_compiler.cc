// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernel_compiler.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "base/clock.h"
#include "base/own_file.h"
#include "gpu/kernel_source.h"

namespace spillway::gpu {
namespace {

using Program = void*;

// NVRTC's functions, named without "nvrtc".
struct CompilerCalls {
  int (*Version)(int* major, int* minor);
  int (*CreateProgram)(Program* program, const char* source, const char* name, int headers,
                       const char* const* header_sources, const char* const* header_names);
  int (*CompileProgram)(Program program, int options, const char* const* texts);
  int (*GetCUBINSize)(Program program, std::size_t* size);
  int (*GetCUBIN)(Program program, char* image);
  int (*GetProgramLogSize)(Program program, std::size_t* size);
  int (*GetProgramLog)(Program program, char* log);
  int (*DestroyProgram)(Program* program);
};

struct Compiler {
  CompilerCalls calls{};
  int major = 0;
  int minor = 0;

  std::string name() const { return fmt::format("NVRTC {}.{}", major, minor); }
};

template <typename FunctionPointer>
bool find_call(void* library, const char* name, FunctionPointer& function) {
  function = reinterpret_cast<FunctionPointer>(::dlsym(library, name));
  return function != nullptr;
}

bool find_calls(void* library, CompilerCalls& calls) {
  return find_call(library, "nvrtcVersion", calls.Version) &&
         find_call(library, "nvrtcCreateProgram", calls.CreateProgram) &&
         find_call(library, "nvrtcCompileProgram", calls.CompileProgram) &&
         find_call(library, "nvrtcGetCUBINSize", calls.GetCUBINSize) &&
         find_call(library, "nvrtcGetCUBIN", calls.GetCUBIN) &&
         find_call(library, "nvrtcGetProgramLogSize", calls.GetProgramLogSize) &&
         find_call(library, "nvrtcGetProgramLog", calls.GetProgramLog) &&
         find_call(library, "nvrtcDestroyProgram", calls.DestroyProgram);
}

base::Result<Compiler> find_compiler(const base::Environment& environment) {
  const std::string configured = environment.text("SPILLWAY_NVRTC");
  std::vector<std::string> places = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                     "/usr/local/cuda/lib64/libnvrtc.so"};
  if (!configured.empty()) {
    places = {configured};
  }
  for (const std::string& place : places) {
    void* const library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    Compiler compiler;
    if (library != nullptr && find_calls(library, compiler.calls) &&
        compiler.calls.Version(&compiler.major, &compiler.minor) == 0) {
      return compiler;
    }
  }
  return base::Status(
      base::StatusCode::kUnavailable,
      fmt::format("NVRTC, which compiles the GPU's kernels, was not found{}: pip install "
                  "nvidia-cuda-nvrtc, or say in SPILLWAY_NVRTC where libnvrtc.so is; until then "
                  "the CPU codes",
                  configured.empty() ? "" : fmt::format(" at {}", configured)));
}

std::vector<std::string> options_for(int major, int minor) {
  return {fmt::format("--gpu-architecture=sm_{}{}", major, minor), "--std=c++17",
          // Fused multiply-adds only where the sources say so, as on the CPU (docs/adr/0003).
          "--fmad=false"};
}

class OwnedProgram {
 public:
  explicit OwnedProgram(const Compiler& compiler) : compiler_(compiler) {
    compiler.calls.CreateProgram(&program_, kKernelSource, "spillway.cu", 0, nullptr, nullptr);
  }
  ~OwnedProgram() {
    if (program_ != nullptr) {
      compiler_.calls.DestroyProgram(&program_);
    }
  }
  OwnedProgram(const OwnedProgram&) = delete;
  OwnedProgram& operator=(const OwnedProgram&) = delete;

  Program get() const { return program_; }

  // The first line of the compiler's log.
  std::string complaint() const {
    std::size_t size = 0;
    compiler_.calls.GetProgramLogSize(program_, &size);
    std::string log(size, '\0');
    compiler_.calls.GetProgramLog(program_, log.data());
    return log.substr(0, log.find_first_of(std::string_view("\n\0", 2)));
  }

 private:
  const Compiler& compiler_;
  Program program_ = nullptr;
};

base::Result<std::vector<char>> compile(const Compiler& compiler, int major, int minor) {
  const OwnedProgram program(compiler);
  const std::vector<std::string> options = options_for(major, minor);
  std::vector<const char*> texts;
  for (const std::string& option : options) {
    texts.push_back(option.c_str());
  }
  std::size_t size = 0;
  if (program.get() == nullptr ||
      compiler.calls.CompileProgram(program.get(), static_cast<int>(texts.size()), texts.data()) !=
          0 ||
      compiler.calls.GetCUBINSize(program.get(), &size) != 0 || size == 0) {
    return base::Status(base::StatusCode::kUnavailable,
                        fmt::format("{} does not compile for compute capability {}.{} ({}): use a "
                                    "newer one; until then the CPU codes",
                                    compiler.name(), major, minor,
                                    program.get() != nullptr ? program.complaint() : "no program"));
  }
  std::vector<char> image(size);
  compiler.calls.GetCUBIN(program.get(), image.data());
  return image;
}

// FNV-1a.
std::uint64_t hash_of(std::string_view text, std::uint64_t hash = 0xCBF29CE484222325ULL) {
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  return hash;
}

std::string file_name(const Compiler& compiler, int major, int minor) {
  std::uint64_t hash = hash_of(kernel_source());
  for (const std::string& option : options_for(major, minor)) {
    hash = hash_of(option, hash);
  }
  return fmt::format("kernels-sm_{}{}-nvrtc{}.{}-{:016x}.cubin", major, minor, compiler.major,
                     compiler.minor, hash);
}

}  // namespace

std::string_view kernel_source() {
  return kKernelSource;
}

std::string cache_folder(const base::Environment& environment) {
  const std::string configured = environment.text("SPILLWAY_CACHE_DIR");
  if (!configured.empty()) {
    return configured;
  }
  if (const auto caches = environment.get("XDG_CACHE_HOME")) {
    return *caches + "/spillway";
  }
  const auto home = environment.get("HOME");
  return home ? *home + "/.cache/spillway" : "";
}

std::optional<std::vector<char>> KernelCache::read(const std::string& name) const {
  constexpr std::string_view kElf =
      "\x7F"
      "ELF";
  if (!is_usable()) {
    return std::nullopt;
  }
  const base::Result<std::string> content = base::read_own_file(path_of(name), kMaxCodeBytes);
  if (!content.ok() || !content->starts_with(kElf)) {
    return std::nullopt;
  }
  return std::vector<char>(content->begin(), content->end());
}

void KernelCache::keep(const std::string& name, const std::vector<char>& image) const {
  if (is_usable()) {
    // A failure only costs time: the next process compiles again.
    (void)base::replace_file(path_of(name), {image.data(), image.size()});
  }
}

base::Result<KernelCode> compile_kernels(int major, int minor,
                                         const base::Environment& environment) {
  const base::MonotonicClock clock;
  const base::Instant begin = clock.now();
  const base::Result<Compiler> compiler = find_compiler(environment);
  if (!compiler.ok()) {
    return compiler.status();
  }
  const KernelCache cache(cache_folder(environment));
  const std::string name = file_name(*compiler, major, minor);
  KernelCode code;
  code.compiler = compiler->name();
  if (auto kept = cache.read(name)) {
    code.image = std::move(*kept);
    code.origin = CodeOrigin::kCache;
  } else {
    base::Result<std::vector<char>> image = compile(*compiler, major, minor);
    if (!image.ok()) {
      return image.status();
    }
    code.image = std::move(*image);
    cache.keep(name, code.image);
  }
  code.seconds = static_cast<double>((clock.now() - begin).count()) * 1e-9;
  return code;
}

}  // namespace spillway::gpu
