// SPDX-License-Identifier: Apache-2.0
//
// libzstd as a rival, taken from the system when a benchmark runs: nothing is needed to build, and
// where the library is missing the benchmark does without (docs/adr/0018).
//
// Huff0 has no exported interface. It is measured inside zstd: literals are Huffman-coded in blocks
// of 128 KiB and four streams, and the search for repetitions is told to skip so far ahead that it
// finds none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace spillway::bench {

enum class ZstdUse { kLevelOne, kHuffmanOnly };

// Compresses bytes with settings of its own. One thread.
class ZstdRival {
 public:
  // Null where there is no libzstd.so.1, or it lacks what is needed.
  static std::unique_ptr<ZstdRival> open(ZstdUse use);

  virtual ~ZstdRival() = default;
  virtual std::string name() const = 0;
  // Into `out`, which it makes as large as may be needed; returns how much it took.
  virtual std::size_t compress(base::ByteView bytes, std::vector<std::uint8_t>& out) = 0;
  virtual std::size_t decompress(base::ByteView bytes, base::MutableByteView out) = 0;
};

}  // namespace spillway::bench
