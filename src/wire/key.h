// SPDX-License-Identifier: Apache-2.0
//
// Keys: what packets and the rendezvous are protected by, and how one follows from another.
//
//   secret, or what the run drew ──► run key ──► keys of one epoch and direction (packet_auth.h)
//                                       │  └───► keys of one epoch's sums (sum_tag.h)
//                                       └──► job's key ──► run keys of its communicators
//
// All are derived with HKDF-SHA256 (RFC 5869), each under a label of its own, so that what is known
// of one says nothing about another. A key is in no core dump, and is wiped when it goes. Plain
// values; any thread.
//
// Packets are numbered from the same number in every communicator, so two that shared a key would
// share keystream and accept each other's packets. Whatever follows from a run key or a job's key
// is therefore derived from a KeyContext, which names everything that sets one use apart from all
// others: two contexts that differ have different keys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/key_memory.h"

namespace spillway::wire {

// Overwrites it, in a way no compiler leaves out.
void wipe(base::MutableByteView bytes);

template <std::size_t Size>
struct Key {
  static constexpr std::size_t kBytes = Size;

  std::array<std::uint8_t, Size>& bytes;  // in key_memory.h's pages, wherever the key itself is

  Key() : bytes(*new (allocate_key_memory(Size)) std::array<std::uint8_t, Size>{}) {}
  Key(const Key& other) : Key() { bytes = other.bytes; }
  Key& operator=(const Key& other) {
    bytes = other.bytes;
    return *this;
  }
  ~Key() { free_key_memory(&bytes, Size); }

  friend bool operator==(const Key& one, const Key& other) { return one.bytes == other.bytes; }
};

// Of one run of a job: everybody in it has the same, nobody outside it and no other run has.
using RunKey = Key<32>;

enum class KeyUse : std::uint8_t {
  kPackets,       // from one rank to another, or draws of sums: epoch, from, to
  kSumParts,      // factors of the words of parts: epoch
  kSumResults,    // factors of the words of results: epoch
  kNumbers,       // of a communicator that are no secret: its job number and its seed
  kJob,           // a job's key, from the run key of the communicator that founds it
  kTicket,        // the nonce in a job's ticket, from the job's key
  kCommunicator,  // a run key, from the job's key: nonce, epoch, channel, members
};

// Fields that the use does not name play no part.
struct KeyContext {
  KeyUse use = KeyUse::kPackets;
  std::uint64_t epoch = 0;
  std::uint16_t from = 0;
  std::uint16_t to = 0;
  std::uint16_t channel = 0;
  std::array<std::uint8_t, 16> nonce{};      // drawn with the epoch
  std::span<const std::uint64_t> members{};  // of the communicator, by rank; at most 65,535
};

// Fills `out` (at most 8,160 bytes) with the key of this use. Fails only where OpenSSL has no HKDF.
base::Status derive(const RunKey& parent, const KeyContext& context, base::MutableByteView out);

// The step that all of them take, and the rendezvous for its own. Fills `out` (at most 8,160 bytes)
// with what follows from `secret`, `salt` (which need not be secret and may be empty) and `label`.
// Fails only where OpenSSL has no HKDF.
base::Status derive(base::ByteView secret, base::ByteView salt, std::string_view label,
                    base::MutableByteView out);

}  // namespace spillway::wire
