// SPDX-License-Identifier: Apache-2.0
//
// Sources of a trace's bytes: a file, gzip or plain as its first bytes tell, or memory. Bytes are
// read on demand; no source holds a whole file.
//
// A gzip file has limits. At most kMaxUnpackedBytes are unpacked. After the first
// kFreeUnpackedBytes, the ratio to the file's size is at most kMaxUnpackRatio. Traces of real
// programs shrink to a twentieth; only made-up ones shrink to less than a hundredth. A node may
// take far more memory than the bytes it is unpacked from, so reader.h limits that as well. Plain
// files have no such limits.
//
// read() fills the span as far as there are bytes; fewer bytes mean the end. An error is final. One
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace spillway::emulate {

inline constexpr std::uint64_t kMaxUnpackedBytes = std::uint64_t{4} << 30;
inline constexpr std::uint64_t kMaxUnpackRatio = 100;
inline constexpr std::uint64_t kFreeUnpackedBytes = std::uint64_t{16} << 20;

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual base::Result<std::size_t> read(base::MutableByteView to) = 0;
  // For a gzip file: how many of its bytes were unpacked so far. Unset for other sources.
  virtual std::optional<std::uint64_t> packed_bytes() const { return std::nullopt; }
};

// The error of a gzip file that exceeds a limit.
base::Status unpacks_to_more_than(const std::string& limit);

base::Result<std::unique_ptr<ByteSource>> open_file(const std::string& path);
// The caller keeps the bytes alive. Gzip is not unpacked here.
std::unique_ptr<ByteSource> memory_source(base::ByteView bytes);

// Reads the rest, for formats that need the whole text; fails if it exceeds `most` bytes.
base::Result<std::string> read_all(ByteSource& source, std::size_t most);

}  // namespace spillway::emulate
