// SPDX-License-Identifier: Apache-2.0
//
// Keys that protect packets and the rendezvous, and how they derive from each other.
//
//   secret, or drawn for the run ──► run key ──► keys of one epoch and direction (packet_auth.h)
//                                       │  └───► keys of one epoch's sums (sum_tag.h)
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

#include "base/bytes.h"
#include "base/status.h"
#include "wire/key_memory.h"

namespace spillway::wire {

// Overwrites the bytes in a way that compilers cannot optimize away.
void wipe(base::MutableByteView bytes);

template <std::size_t Size>
struct Key {
  static constexpr std::size_t kBytes = Size;

  std::array<std::uint8_t, Size>& bytes;  // in key_memory.h's pages, even if the Key is not

  Key() : bytes(*new (allocate_key_memory(Size)) std::array<std::uint8_t, Size>{}) {}
  Key(const Key& other) : Key() { bytes = other.bytes; }
  Key& operator=(const Key& other) {
    bytes = other.bytes;
    return *this;
  }
  ~Key() { free_key_memory(&bytes, Size); }

  friend bool operator==(const Key& one, const Key& other) { return one.bytes == other.bytes; }
};

// Key of one run of a job. All its processes have it; nobody else and no other run does.
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

// Fills `out` (at most 8,160 bytes) with the key for this use. Fails only if OpenSSL lacks HKDF.
base::Status derive(const RunKey& parent, const KeyContext& context, base::MutableByteView out);

// The derivation step behind all keys, also used by the rendezvous. Fills `out` (at most 8,160
// bytes) with bytes derived from `secret`, `salt` (which need not be secret and may be empty) and
// `label`. Fails only if OpenSSL lacks HKDF.
base::Status derive(base::ByteView secret, base::ByteView salt, std::string_view label,
                    base::MutableByteView out);

}  // namespace spillway::wire
