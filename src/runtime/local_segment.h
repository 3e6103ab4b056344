// SPDX-License-Identifier: Apache-2.0
//
// A piece of memory that one rank writes and its neighbours read: a memfd of fixed size.
//
// The owner maps it, then seals it: from then on it can neither shrink nor grow, so that no reader
// ever touches what is not there, and nobody can map it for writing any more. A reader believes
// none of that: SharedSegment::open() looks at kind, size and seals before it maps, and reads only
// inside. What stood in a segment may be read by everybody it was handed to.
//
// Limits: kSegmentBytes of address space for each, of which the owner's take memory as far as they
// were ever used at one time. Memory is asked for before it is touched: when there is none, there
// is no room. A reader's mapping stays good when the owner dies. One thread each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "net/system_call.h"
#include "runtime/block_allocator.h"

namespace spillway::runtime {

inline constexpr std::size_t kSegmentBytes = std::size_t{64} << 20;

// Memory that is unmapped when its owner goes; moved but never copied.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* data, std::size_t bytes) : data_(static_cast<std::uint8_t*>(data)), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  std::uint8_t* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class OwnSegment {
 public:
  static base::Result<OwnSegment> make();

  // What neighbours are handed.
  const net::UniqueFd& descriptor() const { return descriptor_; }

  // A copy of the bytes in the segment; nothing if there is no room.
  std::optional<std::uint64_t> stage(base::ByteView bytes);
  void release(std::uint64_t offset);

  std::size_t staged_bytes() const { return blocks_.taken_bytes(); }
  std::size_t memory_bytes() const { return backed_; }

 private:
  OwnSegment(net::UniqueFd descriptor, Mapping mapping)
      : descriptor_(std::move(descriptor)), mapping_(std::move(mapping)) {}

  bool back(std::size_t end);

  net::UniqueFd descriptor_;
  Mapping mapping_;
  BlockAllocator blocks_{kSegmentBytes};
  std::size_t backed_ = 0;  // so many bytes, from the first, have memory
};

class SharedSegment {
 public:
  // Of a descriptor that somebody else made.
  static base::Result<SharedSegment> open(const net::UniqueFd& descriptor);

  // False, and nothing is copied, if not all of it lies inside.
  bool read(std::uint64_t offset, base::MutableByteView to) const;

 private:
  explicit SharedSegment(Mapping mapping) : mapping_(std::move(mapping)) {}

  Mapping mapping_;
};

}  // namespace spillway::runtime
