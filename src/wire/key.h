// SPDX-License-Identifier: Apache-2.0
//
// Keys: what packets and the rendezvous are protected by, and how one follows from another.
//
//   secret, or what the run drew ──► run key ──► keys of one epoch and direction (packet_auth.h)
//
// All are derived with HKDF-SHA256 (RFC 5869), each under a label of its own, so that what is known
// of one says nothing about another. A key is wiped when it goes. Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace spillway::wire {

// Overwrites it, in a way no compiler leaves out.
void wipe(base::MutableByteView bytes);

template <std::size_t Size>
struct Key {
  std::array<std::uint8_t, Size> bytes{};

  Key() = default;
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key() { wipe(bytes); }

  friend bool operator==(const Key&, const Key&) = default;
};

// Of one run of a job: everybody in it has the same, nobody outside it and no other run has.
using RunKey = Key<32>;

// Fills `out` (at most 8,160 bytes) with what follows from `secret`, `salt` (which need not be
// secret and may be empty) and `label`. Fails only where OpenSSL has no HKDF.
base::Status derive(base::ByteView secret, base::ByteView salt, std::string_view label,
                    base::MutableByteView out);

}  // namespace spillway::wire
