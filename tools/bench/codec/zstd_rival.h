// SPDX-License-Identifier: Apache-2.0
//
// libzstd as a rival, loaded from the system when a benchmark runs. Builds do not need it, and
// without it the benchmark leaves it out (docs/adr/0018).
//
// Huff0 has no exported interface. It is measured inside zstd: literals are Huffman-coded in blocks
// of 128 KiB and four streams, and the search for repetitions skips too far ahead to find any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace spillway::bench {

enum class ZstdUse { kLevelOne, kHuffmanOnly };

// Compresses bytes with its own settings. One thread.
class ZstdRival {
 public:
  // Null if libzstd.so.1 is missing or lacks a function.
  static std::unique_ptr<ZstdRival> open(ZstdUse use);

  virtual ~ZstdRival() = default;
  virtual std::string name() const = 0;
  // Compresses into `out`, which it enlarges as needed; returns the compressed size.
  virtual std::size_t compress(base::ByteView bytes, std::vector<std::uint8_t>& out) = 0;
  virtual std::size_t decompress(base::ByteView bytes, base::MutableByteView out) = 0;
};

}  // namespace spillway::bench
