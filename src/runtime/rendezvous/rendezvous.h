// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a job find each other: every rank brings a few bytes, addresses mostly, and goes
// with those of all. One rank is the host, the others are its guests:
//
//   guests ── hello (who, of which job, bytes) ──► host ── gather (everybody's bytes) ──► guests
//
// One shot: it is no barrier and keeps nothing; when it returns, all is closed. Ranks may come in
// any order, the host last. If some do not come, those who did are all told which.
//
// Every rank brings fresh randomness as well, and all go with the same key, which is this run's
// alone. What it is worth depends on what the ranks knew before (handshake.h):
//
//   a secret     host and guests prove to each other that they know it before anything is said
//                about the job, and all else is sealed: nobody without it learns or changes a thing
//   a unique id  the same with the id's nonce: safe from whoever has not seen the id
//   neither      nothing is proved or hidden: safe only from those who cannot read or change what
//                the ranks say here, nor get to the host first
//
// Limits: kMaxRanks, kMaxBlobBytes a rank. Blocks the calling thread for `patience` and up to a
// few seconds more, or for as long as the resolver takes to look up a name. Any thread, and several
// rendezvous at a time.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "runtime/launch/launch.h"
#include "runtime/rendezvous/message.h"
#include "runtime/rendezvous/outcome.h"
#include "runtime/rendezvous/unique_id.h"

namespace spillway::runtime {

// Rank 0 is the host. `secret`: the job's, or empty.
base::Result<Meeting> exchange(const Launch& launch, base::ByteView secret, const Blob& own,
                               base::Duration patience);

struct Member {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
};

// The same for ranks that share an id. Whoever made the id must take part: it is the host.
base::Result<Meeting> exchange(const UniqueId& id, Member member, base::ByteView secret,
                               const Blob& own, base::Duration patience);

// For a rank that is alone: a key that nobody else has.
base::Result<Meeting> meet_nobody(const Blob& own);

}  // namespace spillway::runtime
