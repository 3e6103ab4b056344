// SPDX-License-Identifier: Apache-2.0
//
// Keys that protect packets and the rendezvous, how they derive from each other, and the memory
// that holds them.
//
//   secret, or drawn for the run ──► run key ──► keys of one epoch and direction (packet_auth.h)
//                                       │  └───► keys of one epoch's sums (sum_datagram.h)
//                                       └──► job's key ──► run keys of its communicators
//
// All are derived with HKDF-SHA256 (RFC 5869), each under its own label, so that knowing one key
// reveals nothing about another. Core dumps exclude keys, and keys are wiped when they are
// destroyed. Plain values; any thread.
//
// Every communicator numbers its packets from the same start. Two communicators that shared a key
// would share keystream and accept each other's packets. A KeyContext therefore names everything
// that sets one use of a run key or job key apart. Different contexts give different keys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace spillway::wire {

// ------------------------------------------------------------------ memory
// Pages that the kernel leaves out of core dumps (MADV_DONTDUMP), because core dumps get copied to
// places where a job's keys must not be.
//
//   pages of 64 KiB ──► slots of 64, 128, ... bytes, with a free list per size
//
// Invariants: a slot is zero when allocated, wiped when freed, and aligned to kKeyAlignment. Pages
// are never unmapped but reused. A kernel without MADV_DONTDUMP gives ordinary pages.
//
// Allocation throws std::bad_alloc when memory runs out. Keys are made when ranks meet and epochs
// begin, never per packet, so one lock is enough.

inline constexpr std::size_t kKeyAlignment = 64;

void* allocate_key_memory(std::size_t bytes);
// `bytes` must equal the size of the allocation.
void free_key_memory(void* memory, std::size_t bytes) noexcept;

// Base class for structs of keys on the heap.
struct InKeyMemory {
  static void* operator new(std::size_t bytes) { return allocate_key_memory(bytes); }
  static void operator delete(void* memory, std::size_t bytes) { free_key_memory(memory, bytes); }
};

template <typename T>
struct KeyAllocator {
  using value_type = T;

  KeyAllocator() = default;
  template <typename Other>
  KeyAllocator(const KeyAllocator<Other>&) {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t count) { return static_cast<T*>(allocate_key_memory(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t count) noexcept {
    free_key_memory(memory, count * sizeof(T));
  }
  friend bool operator==(const KeyAllocator&, const KeyAllocator&) { return true; }
};

using KeyBytes = std::vector<std::uint8_t, KeyAllocator<std::uint8_t>>;

// ------------------------------------------------------------------ keys and their uses

// Overwrites the bytes in a way that compilers cannot optimize away.
void wipe(base::MutableByteView bytes);

template <std::size_t Size>
struct Key {
  static constexpr std::size_t kBytes = Size;

  std::array<std::uint8_t, Size>& bytes;  // in key memory, even if the Key is not

  Key() : bytes(*new (allocate_key_memory(Size)) std::array<std::uint8_t, Size>{}) {}
  Key(const Key& other) : Key() { bytes = other.bytes; }
  Key& operator=(const Key& other) {
    bytes = other.bytes;
    return *this;
  }
  ~Key() { free_key_memory(&bytes, Size); }

  friend bool operator==(const Key& one, const Key& other) { return one.bytes == other.bytes; }
};

// Key of one run of a job. All processes of the run have it, and nobody else.
using RunKey = Key<32>;

enum class KeyUse : std::uint8_t {
  kPackets,       // packets of one direction, or draws of sums: epoch, from, to
  kSumParts,      // factors for the words of parts: epoch
  kSumResults,    // factors for the words of results: epoch
  kNumbers,       // a communicator's public numbers: its job number and its seed
  kJob,           // a job's key, from the run key of the communicator that founds the job
  kTicket,        // the nonce in a job's ticket, from the job's key
  kCommunicator,  // a run key, from the job's key: nonce, epoch, channel, members
};

// Ignores fields that the use does not name.
struct KeyContext {
  KeyUse use = KeyUse::kPackets;
  std::uint64_t epoch = 0;
  std::uint16_t from = 0;
  std::uint16_t to = 0;
  std::uint16_t channel = 0;
  std::array<std::uint8_t, 16> nonce{};      // drawn with the epoch
  std::span<const std::uint64_t> members{};  // the communicator's members by rank; at most 65,535
};

// ------------------------------------------------------------------ derivation

// The label of every derivation in Spillway. Two derivations that shared one could give the same
// key, so derive() takes no label that is not in this list.
enum class KeyLabel : std::uint8_t {
  kPackets,  // KeyUse: one label each
  kSumParts,
  kSumResults,
  kNumbers,
  kJob,
  kTicket,
  kCommunicator,
  kPacketsOfSecret,   // packets under a caller's secret (packet_auth.h)
  kPacketsOfMessage,  // packets of one message, written and read without a run (capi/packets.cc)
  kRun,               // a run key, from the random numbers of the ranks at the rendezvous
  kRendezvousSecret,  // a credential of the rendezvous, from the job's secret
  kRendezvousId,      // the same, from the ranks' unique id
  kRendezvousProof,   // the key of proofs at the rendezvous
  kRendezvousToHost,  // its streams' keys after the proofs
  kRendezvousToJoiner,
  kJobName,         // the name under which a job is shown, from its ticket
  kStreamConnects,  // proofs when a stream begins (net/stream_connection.h)
  kStreamAnswers,
  kMemberFromDialler,  // streams between members of a job (elastic/mesh_message.h)
  kMemberToDialler,
};
// The text of each KeyLabel, which is part of the protocol. No two texts are equal, and none begins
// with another.
inline constexpr std::array<std::string_view, 20> kKeyLabels = {
    "spillway packets v4: epoch, from, to",
    "spillway sums v1: parts",
    "spillway sums v1: results",
    "spillway job v2",
    "spillway membership v1",
    "spillway job ticket v1",
    "spillway epoch v4: nonce, epoch, channel, members",
    "spillway packets v4: secret",
    "spillway packets of one message",
    "spillway run key v2",
    "spillway rendezvous v2 secret",
    "spillway rendezvous v2 unique id",
    "spillway rendezvous v2 proof",
    "spillway rendezvous v2 guest to host",
    "spillway rendezvous v2 host to guest",
    "spillway job name v1",
    "spillway stream v1: who connects",
    "spillway stream v1: who answers",
    "spillway member v1 from the dialler",
    "spillway member v1 to the dialler",
};
static_assert(static_cast<std::size_t>(KeyLabel::kMemberToDialler) + 1 == kKeyLabels.size());

// Fills `out` (at most 8,160 bytes) with the key for this use. Fails only if OpenSSL lacks HKDF.
base::Status derive(const RunKey& parent, const KeyContext& context, base::MutableByteView out);

// The derivation step behind all keys. Fills `out` (at most 8,160 bytes) with bytes derived from
// `secret`, `salt` (which need not be secret and may be empty) and `label`. Fails only if OpenSSL
// lacks HKDF.
base::Status derive(base::ByteView secret, base::ByteView salt, KeyLabel label,
                    base::MutableByteView out);

// RFC 5869 with any `info`, only for tests. All other code derives under a label.
base::Status hkdf_sha256(base::ByteView secret, base::ByteView salt, std::string_view info,
                         base::MutableByteView out);

}  // namespace spillway::wire
