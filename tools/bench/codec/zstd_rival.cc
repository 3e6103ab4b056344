// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/zstd_rival.h"

#include <dlfcn.h>

#include "tools/bench/command_error.h"

namespace spillway::bench {
namespace {

struct ZstdContext;

// Identifiers of zstd's parameters and the values they are set to.
constexpr int kLevelParameter = 100;
constexpr int kLiteralsParameter = 1002;
constexpr int kHuffmanAlways = 1;
constexpr int kFurthestSkip = -131'072;  // a level: how far ahead the search skips

struct ZstdFunctions {
  ZstdContext* (*create)();
  std::size_t (*destroy)(ZstdContext*);
  std::size_t (*set)(ZstdContext*, int, int);
  std::size_t (*compress)(ZstdContext*, void*, std::size_t, const void*, std::size_t);
  std::size_t (*decompress)(void*, std::size_t, const void*, std::size_t);
  std::size_t (*bound)(std::size_t);
  unsigned (*is_error)(std::size_t);
};

template <typename Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

class LoadedZstd : public ZstdRival {
 public:
  LoadedZstd(const ZstdFunctions& zstd, ZstdUse use)
      : zstd_(zstd), use_(use), context_(zstd.create()) {}
  ~LoadedZstd() override { zstd_.destroy(context_); }
  LoadedZstd(const LoadedZstd&) = delete;
  LoadedZstd& operator=(const LoadedZstd&) = delete;

  bool prepare() {
    if (context_ == nullptr) {
      return false;
    }
    if (use_ == ZstdUse::kLevelOne) {
      return is_set(kLevelParameter, 1);
    }
    return is_set(kLevelParameter, kFurthestSkip) && is_set(kLiteralsParameter, kHuffmanAlways);
  }

  std::string name() const override { return use_ == ZstdUse::kLevelOne ? "zstd -1" : "huff0"; }

  std::size_t compress(base::ByteView bytes, std::vector<std::uint8_t>& out) override {
    out.resize(zstd_.bound(bytes.size()));
    return checked(zstd_.compress(context_, out.data(), out.size(), bytes.data(), bytes.size()));
  }

  std::size_t decompress(base::ByteView bytes, base::MutableByteView out) override {
    return checked(zstd_.decompress(out.data(), out.size(), bytes.data(), bytes.size()));
  }

 private:
  bool is_set(int parameter, int value) {
    return zstd_.is_error(zstd_.set(context_, parameter, value)) == 0;
  }
  std::size_t checked(std::size_t result) const {
    if (zstd_.is_error(result) != 0) {
      throw CommandError("libzstd failed: run without it (rename libzstd.so.1 or leave it out)");
    }
    return result;
  }

  ZstdFunctions zstd_;
  ZstdUse use_;
  ZstdContext* context_;
};

}  // namespace

std::unique_ptr<ZstdRival> ZstdRival::open(ZstdUse use) {
  // Never closed: it stays loaded for the life of the process, as a linked library would.
  static void* const library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
  ZstdFunctions zstd{};
  if (library == nullptr || !find_function(library, "ZSTD_createCCtx", zstd.create) ||
      !find_function(library, "ZSTD_freeCCtx", zstd.destroy) ||
      !find_function(library, "ZSTD_CCtx_setParameter", zstd.set) ||
      !find_function(library, "ZSTD_compress2", zstd.compress) ||
      !find_function(library, "ZSTD_decompress", zstd.decompress) ||
      !find_function(library, "ZSTD_compressBound", zstd.bound) ||
      !find_function(library, "ZSTD_isError", zstd.is_error)) {
    return nullptr;
  }
  auto rival = std::make_unique<LoadedZstd>(zstd, use);
  return rival->prepare() ? std::move(rival) : nullptr;
}

}  // namespace spillway::bench
