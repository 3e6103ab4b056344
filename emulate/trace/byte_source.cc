// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/byte_source.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace spillway::emulate {
namespace {

constexpr unsigned kFileBuffer = 1 << 17;
constexpr std::size_t kReadStep = 1 << 20;

// zlib passes plain files through unchanged.
class FileSource final : public ByteSource {
 public:
  FileSource(gzFile file, std::string path) : file_(file), path_(std::move(path)) {}
  ~FileSource() override { gzclose_r(file_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  base::Result<std::size_t> read(base::MutableByteView to) override {
    std::size_t done = 0;
    while (done < to.size()) {
      const auto step = static_cast<unsigned>(std::min(to.size() - done, kReadStep));
      const int count = gzread(file_, to.data() + done, step);
      if (count < 0 || (count == 0 && !ended_well())) {
        return broken();
      }
      if (count == 0) {
        break;
      }
      done += static_cast<std::size_t>(count);
      if (base::Status status = check_limits(); !status.ok()) {
        return status;
      }
    }
    return done;
  }
  std::optional<std::uint64_t> packed_bytes() const override {
    return gzdirect(file_) != 0 ? std::nullopt
                                : std::optional(static_cast<std::uint64_t>(gzoffset(file_)));
  }

 private:
  base::Status check_limits() const {
    const std::optional<std::uint64_t> packed = packed_bytes();
    if (!packed) {
      return {};
    }
    const auto unpacked = static_cast<std::uint64_t>(gztell(file_));
    if (unpacked > kMaxUnpackedBytes) {
      return unpacks_to_more_than(fmt::format("{} bytes", kMaxUnpackedBytes));
    }
    if (unpacked > kFreeUnpackedBytes && unpacked > kMaxUnpackRatio * *packed) {
      return unpacks_to_more_than(fmt::format("{} times its size", kMaxUnpackRatio));
    }
    return {};
  }
  bool ended_well() const {
    int code = Z_OK;
    gzerror(file_, &code);
    return code == Z_OK || code == Z_STREAM_END;
  }
  base::Status broken() const {
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    return {
        base::StatusCode::kMalformed,
        fmt::format("{} cannot be read: {}", path_, code == Z_ERRNO ? std::strerror(errno) : text)};
  }

  gzFile file_;
  std::string path_;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(base::ByteView bytes) : bytes_(bytes) {}
  base::Result<std::size_t> read(base::MutableByteView to) override {
    const std::size_t count = std::min(to.size(), bytes_.size());
    std::copy_n(bytes_.begin(), count, to.begin());
    bytes_ = bytes_.subspan(count);
    return count;
  }

 private:
  base::ByteView bytes_;
};

}  // namespace

base::Result<std::unique_ptr<ByteSource>> open_file(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    return base::invalid_argument(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  gzbuffer(file, kFileBuffer);
  return std::unique_ptr<ByteSource>(std::make_unique<FileSource>(file, path));
}

base::Status unpacks_to_more_than(const std::string& limit) {
  return {base::StatusCode::kLimitExceeded,
          fmt::format("it unpacks to more than {}: if you trust it, unpack it with gunzip and "
                      "give the file that it makes",
                      limit)};
}

std::unique_ptr<ByteSource> memory_source(base::ByteView bytes) {
  return std::make_unique<MemorySource>(bytes);
}

base::Result<std::string> read_all(ByteSource& source, std::size_t most) {
  std::string text;
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + kReadStep);
    const base::Result<std::size_t> count =
        source.read({reinterpret_cast<std::uint8_t*>(text.data()) + before, kReadStep});
    if (!count.ok()) {
      return count.status();
    }
    text.resize(before + *count);
    if (text.size() > most) {
      return base::Status(base::StatusCode::kLimitExceeded,
                          fmt::format("the trace is longer than {} bytes", most));
    }
    if (*count < kReadStep) {
      return text;
    }
  }
}

}  // namespace spillway::emulate
