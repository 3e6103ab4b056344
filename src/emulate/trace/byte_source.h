// SPDX-License-Identifier: Apache-2.0
//
// Where a trace's bytes come from: a file, gzip or plain, told by its first bytes, or memory. Bytes
// are handed out as they are asked for; no source holds a whole file.
//
// read() fills the span as far as there are bytes: fewer means the end. An error is final. One
// thread. `name` is what messages call it.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace spillway::emulate {

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
