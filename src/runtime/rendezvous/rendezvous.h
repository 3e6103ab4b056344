// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a job find each other: every rank brings a few bytes, addresses mostly, and goes
// with those of all. One rank is the host, the others are its guests:
//
//   guests ── hello (who, of which job, bytes) ──► host ── gather (everybody's bytes) ──► guests
//
// One shot: it is no barrier and keeps nothing; when it returns, all is closed. Ranks may come in
// any order, the host last. If some do not come, those who did are all told which.
// Nothing is authenticated or encrypted: the network between the ranks is trusted, as elsewhere.
//
// Limits: kMaxRanks, kMaxBlobBytes a rank. Blocks the calling thread for `patience` and up to a
// few seconds more, or for as long as the resolver takes to look up a name. Any thread, and several
// rendezvous at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "runtime/launch/launch.h"
#include "runtime/rendezvous/message.h"
#include "runtime/rendezvous/unique_id.h"

namespace spillway::runtime {

// Everybody's blobs in the order of ranks. Rank 0 is the host.
base::Result<std::vector<Blob>> exchange(const Launch& launch, const Blob& own,
                                         base::Duration patience);

struct Member {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
};

// The same for ranks that share an id. Whoever made the id must take part: it is the host.
base::Result<std::vector<Blob>> exchange(const UniqueId& id, Member member, const Blob& own,
                                         base::Duration patience);

}  // namespace spillway::runtime
