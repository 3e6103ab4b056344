// SPDX-License-Identifier: Apache-2.0
//
// Memory that ranks of one machine share: a rank stages data in its own segment, and its neighbours
// read it there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "collective/byte_payload.h"
#include "comm/preparation.h"
#include "net/system_call.h"

namespace spillway::comm {

// ------------------------------------------------------------------ segments

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

// Allocates blocks of whole pages from a range of bytes. A request gets the lowest free place that
// is large enough: low offsets are reused and stay in caches, and pages that were never needed are
// never touched. One thread.

class BlockAllocator {
 public:
  static constexpr std::size_t kGrain = 4096;

  explicit BlockAllocator(std::size_t bytes);

  // The offset of a block of at least `bytes`; nullopt if no free block is large enough, or for 0.
  std::optional<std::size_t> take(std::size_t bytes);
  // Frees the block at an offset from take(). Returns false and changes nothing for any other
  // offset.
  bool give_back(std::size_t offset);

  std::size_t taken_bytes() const { return taken_bytes_; }

 private:
  std::map<std::size_t, std::size_t> free_;   // bytes by offset; adjacent blocks are merged
  std::map<std::size_t, std::size_t> taken_;  // bytes by offset
  std::size_t taken_bytes_ = 0;
};

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

// ------------------------------------------------------------------ exchange between neighbours

// Memory shared between ranks of one machine. Each rank hands its segment to its
// neighbours when they meet, and reads theirs. No process reads another's address space or needs
// rights over another process.
//
// Ranks may share if they run under one kernel, one user and one network: ranks in separate network
// namespaces are meant to use the network. SPILLWAY_LOCAL_COPY=0 turns sharing off. If a handover
// fails in either direction, the two neighbours still count as near, and their data goes through
// sockets.
//
// Handover: a rank opens a MemoryListener, a Unix socket with a random abstract name, which its
// card carries. Once all cards are known, each rank connects to its neighbours' listeners and
// serves its own (hand_over):
//
//   neighbour to owner   ask    its rank, and the owner's token
//   owner to neighbour   here   its rank, the neighbour's token, and the segment's descriptor
//   neighbour to owner   taken  its rank, and the owner's token: it can read
//
// Every process on the machine can see a name; only cards carry a token. A token therefore proves
// that the peer was at the rendezvous, and the kernel must also confirm that it runs as this user.
// Other connections are rejected and counted.
//
// One thread: first the one that meets the other ranks, then the communicator's. Limits: the
// handover's `patience`; kMaxMemoryStrangers connections that have not identified themselves.

// ------------------------------------------------------------------ handover

inline constexpr std::size_t kMaxMemoryStrangers = 64;

class MemoryListener {
 public:
  static base::Result<MemoryListener> open();

  const net::UniqueFd& socket() const { return socket_; }
  const std::string& name() const { return name_; }
  const std::string& token() const { return token_; }

 private:
  MemoryListener(net::UniqueFd socket, std::string name, std::string token)
      : socket_(std::move(socket)), name_(std::move(name)), token_(std::move(token)) {}

  net::UniqueFd socket_;
  std::string name_;   // 32 hexadecimal digits
  std::string token_;  // 32 hexadecimal digits
};

// The outcome for one neighbour.
struct Neighbour {
  std::uint16_t rank = 0;
  std::optional<SharedSegment> segment{};  // this rank can read it
  bool reads_us = false;                   // it can read this rank's
  std::string trouble{};                   // why either failed; empty if neither did
};

struct HandoverResult {
  std::vector<Neighbour> neighbours{};
  std::uint64_t rejected = 0;  // connections
};

// Hands over with all ranks whose cards name the same domain as `cards[rank]`, this rank's own, and
// closes the listener. Takes at most `patience`. The memory of a neighbour that is silent, gone or
// does not match its card is not shared. Each end decides for itself: an owner that gets no "taken"
// assumes that the neighbour cannot read.
HandoverResult hand_over(MemoryListener listener, const OwnSegment& own,
                         std::span<const RankCard> cards, std::uint16_t rank,
                         base::Duration patience);

// ------------------------------------------------------------------ shared memory

static_assert(collective::PeerMemory::kMaxBytes <= kSegmentBytes);

// Ranks with the same domain may share. Empty if the kernel does not reveal it.
std::string memory_domain();

// A rank's share of memory before it knows the others.
struct MemoryOffer {
  static base::Result<MemoryOffer> make();

  MemoryCard card() const { return {domain, listener.name(), listener.token()}; }

  std::string domain;
  OwnSegment segment;
  MemoryListener listener;
};

class LocalMemory final : public collective::PeerMemory {
 public:
  // Hands over in at most `patience`, and logs the neighbours that failed.
  static LocalMemory share(MemoryOffer offer, std::span<const RankCard> cards, std::uint16_t rank,
                           base::Duration patience);

  bool is_local_rank(std::uint16_t peer) const override { return neighbours_[peer].has_value(); }
  bool is_read_by(std::uint16_t peer) const override {
    return is_local_rank(peer) && neighbours_[peer]->reads_us;
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

// The memory that this rank can share with others of its machine; nullopt if sharing is off or
// fails.
std::optional<MemoryOffer> offer_memory(const Preparation& preparation);

// Shares memory with the ranks whose cards allow it; null if there are none. All ranks must pass
// the same cards. Takes at most `patience`.
std::unique_ptr<LocalMemory> memory_of(std::optional<MemoryOffer> offer,
                                       std::span<const RankCard> cards, std::uint16_t rank,
                                       base::Duration patience);

}  // namespace spillway::comm
