// SPDX-License-Identifier: Apache-2.0
//
// Memory shared between ranks of one machine. Each rank hands its segment (local_segment.h) to its
// neighbours when they meet (local_handover.h), and reads theirs. No process reads another's
// address space or needs rights over another process.
//
// Ranks may share if they run under one kernel, one user and one network: ranks in separate network
// namespaces are meant to use the network. SPILLWAY_LOCAL_COPY=0 turns sharing off. If a handover
// fails in either direction, the two neighbours still count as near, and that data goes through
// sockets.
//
// One thread: first the one that meets the other ranks, then the communicator's.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "collective/peer_memory.h"
#include "comm/local_handover.h"
#include "comm/local_segment.h"
#include "comm/rank_card.h"

namespace spillway::runtime {

static_assert(collective::PeerMemory::kMaxBytes <= kSegmentBytes);

// Ranks with the same domain may share. Empty if the kernel does not tell.
std::string memory_domain();

// What a rank prepares before it knows the others.
struct MemoryOffer {
  static base::Result<MemoryOffer> make();

  MemoryCard card() const { return {domain, door.name(), door.token()}; }

  std::string domain;
  OwnSegment segment;
  MemoryDoor door;
};

class LocalMemory final : public collective::PeerMemory {
 public:
  // Hands over in at most `patience`, and logs the neighbours that failed.
  static LocalMemory share(MemoryOffer offer, std::span<const RankCard> cards, std::uint16_t rank,
                           base::Duration patience);

  bool is_near(std::uint16_t peer) const override { return neighbours_[peer].has_value(); }
  bool is_read_by(std::uint16_t peer) const override {
    return is_near(peer) && neighbours_[peer]->reads_us;
  }
  std::optional<std::uint64_t> stage(base::ByteView bytes) override { return own_.stage(bytes); }
  void release(std::uint64_t offset) override { own_.release(offset); }
  bool read(std::uint16_t peer, const collective::MemoryPlace& place,
            base::MutableByteView to) override;
  const std::optional<collective::MemoryFailure>& failure() const override { return failure_; }

  // Number of refused reads.
  std::uint64_t refused() const { return refused_; }
  // Memory in use by this rank's own segment.
  std::size_t memory_bytes() const { return own_.memory_bytes(); }

 private:
  LocalMemory(OwnSegment own, std::size_t world) : own_(std::move(own)), neighbours_(world) {}

  OwnSegment own_;
  std::vector<std::optional<Neighbour>> neighbours_;  // by rank; nullopt if not near
  std::optional<collective::MemoryFailure> failure_;
  std::uint64_t refused_ = 0;
};

}  // namespace spillway::runtime
