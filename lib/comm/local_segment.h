// SPDX-License-Identifier: Apache-2.0
//
// A piece of memory that one rank writes and its neighbours read: a memfd of fixed size.
//
// The owner maps the memfd, then seals it. From then on it can neither shrink nor grow, so no
// reader touches missing pages, and no one can make a new writable mapping. A reader trusts none of
// this: SharedSegment::open() checks kind, size and seals before it maps, and reads stay inside.
// Every neighbour with the descriptor can read all data ever staged.
//
// Limits: kSegmentBytes of address space per segment. The owner's segment takes memory up to the
// highest offset ever used. Memory is requested before it is touched; if there is none, stage()
// returns nullopt. A reader's mapping survives the owner's death. Each segment belongs to one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "comm/block_allocator.h"
#include "net/system_call.h"

namespace spillway::runtime {

inline constexpr std::size_t kSegmentBytes = std::size_t{64} << 20;

// A mapping that is unmapped with its owner. Movable, not copyable.
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

  // The descriptor that neighbours receive.
  const net::UniqueFd& descriptor() const { return descriptor_; }

  // Copies the bytes into the segment. Returns their offset, or nullopt if there is no room.
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
  std::size_t backed_ = 0;  // bytes from offset 0 that have memory
};

class SharedSegment {
 public:
  // Checks and maps a descriptor that another process made.
  static base::Result<SharedSegment> open(const net::UniqueFd& descriptor);

  // Returns false and copies nothing unless the whole range lies inside.
  bool read(std::uint64_t offset, base::MutableByteView to) const;

 private:
  explicit SharedSegment(Mapping mapping) : mapping_(std::move(mapping)) {}

  Mapping mapping_;
};

}  // namespace spillway::runtime
