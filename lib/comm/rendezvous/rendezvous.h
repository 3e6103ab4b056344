// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a job find each other: every rank brings a blob, mostly addresses, and gets the
// blobs of all. One rank is the host, the others are its guests:
//
//   guests ── hello (rank, job, blob) ──► host ── gather (all blobs) ──► guests
//
// One exchange: it is no barrier, and all sockets are closed when it returns. Ranks may come in any
// order, the host last. If some ranks do not come, all others are told which.
//
// Every rank also adds fresh randomness, and all derive the same key, which is new for each run.
// Its strength depends on what the ranks shared before (handshake.h):
//
//   a secret     host and guests prove to each other that they know it before they exchange any
//                job data, and all else is sealed: outsiders can neither read nor change it
//   a unique id  the same with the id's nonce: safe from anyone who has not seen the id
//   neither      nothing is proved or hidden: anyone who can read or change the rendezvous'
//                traffic, or reach the host first, can attack it
//
// Limits: kMaxRanks, kMaxBlobBytes per rank. Blocks the calling thread for `patience` and up to a
// few seconds more, or as long as a name lookup takes. Any thread; several rendezvous may run at a
// time.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "comm/rendezvous/message.h"
#include "comm/rendezvous/outcome.h"
#include "comm/rendezvous/unique_id.h"
#include "launch/launch.h"

namespace spillway::runtime {

// Rank 0 is the host. `secret`: the job's secret, or empty.
base::Result<Meeting> exchange(const Launch& launch, base::ByteView secret, const Blob& own,
                               base::Duration patience);

struct Member {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
};

// The same for ranks that share an id. The id's maker must take part: it is the host.
base::Result<Meeting> exchange(const UniqueId& id, Member member, base::ByteView secret,
                               const Blob& own, base::Duration patience);

// For a world of one: a fresh key that no other process has.
base::Result<Meeting> meet_nobody(const Blob& own);

}  // namespace spillway::runtime
