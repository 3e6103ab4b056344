// SPDX-License-Identifier: Apache-2.0
//
// Memory that ranks of one machine share, as collectives see it. A rank copies bytes for a
// neighbour into a segment of its own (stage), and tells the neighbour where they are (MemoryPlace,
// in a packet). The neighbour copies them out (read). No rank writes to another's memory, or reads
// anything else of it.
//
// Both ends agree on which ranks are near, so both know that a message between them begins with a
// place. Only the sender knows whether there is one: there may be no room, or the neighbour may
// have been unable to take the segment. Then the place says so, and the bytes follow through the
// network.
//
// A place comes from a neighbour, so it is checked: one that lies outside the segment, or is not of
// the agreed length, is refused, and failure() names the neighbour from then on. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/status.h"

namespace spillway::collective {

// Where a message's bytes lie in their sender's segment. Travels as it is.
struct MemoryPlace {
  static constexpr std::uint64_t kNowhere = UINT64_MAX;  // they follow through the network

  std::uint64_t offset = kNowhere;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(MemoryPlace) == 16);

struct MemoryFailure {
  std::uint16_t peer = 0;
  base::Status status;
};

class PeerMemory {
 public:
  // Limit of one message; longer ones use the network.
  static constexpr std::size_t kMaxBytes = std::size_t{16} << 20;

  virtual ~PeerMemory() = default;
  // True if messages to and from this rank begin with a place.
  virtual bool is_near(std::uint16_t peer) const = 0;
  // True if the peer can read what is staged here.
  virtual bool is_read_by(std::uint16_t peer) const = 0;

  // Copies bytes to where neighbours can read them. Returns where that is, or nothing if there is
  // no room. They stay until release().
  virtual std::optional<std::uint64_t> stage(base::ByteView bytes) = 0;
  virtual void release(std::uint64_t offset) = 0;

  // Copies `to.size()` bytes from a place in a neighbour's segment. False if there is no such
  // place; failure() then says so, for good.
  virtual bool read(std::uint16_t peer, const MemoryPlace& place, base::MutableByteView to) = 0;
  virtual const std::optional<MemoryFailure>& failure() const = 0;
};

}  // namespace spillway::collective
