// SPDX-License-Identifier: Apache-2.0
//
// Where a trace's bytes come from: a file, gzip or plain, told by its first bytes, or memory. Bytes
// are handed out as they are asked for; no source holds a whole file.
//
// Limits of a gzip file, because a node takes more memory than the bytes it is unpacked from:
// kMaxUnpackedBytes, and behind the first kFreeUnpackedBytes kMaxUnpackRatio bytes for each byte of
// the file. Traces of real programs shrink to a twentieth; only made-up ones shrink to less than a
// hundredth. A file that somebody unpacked is read whatever it is.
//
// read() fills the span as far as there are bytes: fewer means the end. An error is final. One
// thread. `name` is what messages call it.
#pragma once

#include <cstdint>
#include <memory>
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
};

base::Result<std::unique_ptr<ByteSource>> open_file(const std::string& path);
// The bytes outlive the source; they are taken as they are.
std::unique_ptr<ByteSource> memory_source(base::ByteView bytes);

// All that is left, for formats that are read as a whole; refuses more than `most`.
base::Result<std::string> read_all(ByteSource& source, std::size_t most);

}  // namespace spillway::emulate
