// SPDX-License-Identifier: Apache-2.0
//
// What every rank goes home with from a rendezvous: everybody's bytes, and the key of the run.
//
//   run key = HKDF(credential's key | what the host drew, SHA-256(all ranks' randoms), label)
//
// All ranks of a run have the same, and no other run has it: every rank brought 32 fresh bytes.
// With a secret nobody else can know it; without, whoever read what was said at the rendezvous.
// Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/rendezvous/handshake.h"
#include "runtime/rendezvous/message.h"
#include "wire/key.h"

namespace spillway::runtime {

// Of those whom the host turned away, by StrangerKind.
struct StrangerCounts {
  std::array<std::uint64_t, kStrangerKinds> counts{};

  std::uint64_t& operator[](StrangerKind kind) { return counts[static_cast<std::size_t>(kind)]; }
  std::uint64_t operator[](StrangerKind kind) const {
    return counts[static_cast<std::size_t>(kind)];
  }
  std::uint64_t total() const;
  // "turned away: 2 did not prove that they belong to this job; 1 ..."; empty without any.
  std::string to_string() const;
};

struct Meeting {
  std::vector<Blob> blobs{};  // in the order of ranks
  wire::RunKey key{};
  StrangerCounts strangers{};  // at the host
};

base::Result<Meeting> meeting_of(const Credential& credential, const Gather& gather);

}  // namespace spillway::runtime
