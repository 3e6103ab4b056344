// SPDX-License-Identifier: Apache-2.0
//
// The result of a rendezvous at every rank: the blobs of all ranks, and the key of the run.
//
//   run key = HKDF(credential's key | the host's drawn key, SHA-256(all ranks' randoms), label)
//
// All ranks of a run have the same key, and no other run has it, because every rank adds 32 fresh
// bytes. With a secret, outsiders cannot know the key. Without one, anyone who read the rendezvous'
// traffic can. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/message.h"
#include "wire/key.h"

namespace spillway::runtime {

// Clients that the host rejected, by StrangerKind.
struct StrangerCounts {
  std::array<std::uint64_t, kStrangerKinds> counts{};

  std::uint64_t& operator[](StrangerKind kind) { return counts[static_cast<std::size_t>(kind)]; }
  std::uint64_t operator[](StrangerKind kind) const {
    return counts[static_cast<std::size_t>(kind)];
  }
  std::uint64_t total() const;
  // "turned away: 2 did not prove that they belong to this job; 1 ..."; empty if there were none.
  std::string to_string() const;
};

struct Meeting {
  std::vector<Blob> blobs{};  // by rank
  wire::RunKey key{};
  StrangerCounts strangers{};  // counted at the host
};

base::Result<Meeting> meeting_of(const Credential& credential, const Gather& gather);

}  // namespace spillway::runtime
