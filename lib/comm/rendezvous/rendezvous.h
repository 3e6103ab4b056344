// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a job find each other. Every rank brings a blob, mostly addresses, and gets the
// blobs of all ranks. One rank is the host, the others join it:
//
//   joiners ── hello (rank, job, blob) ──► host ── gather (all blobs) ──► joiners
//
// It is one exchange and no barrier: all sockets are closed when it returns. Ranks may come in any
// order, the host last. If some ranks do not come, all others are told which.
//
// Every rank also adds fresh randomness, and all derive the same key, which is new for each run.
// Its strength depends on what the ranks shared before (handshake.h):
//
//   a secret     host and joiners prove to each other that they know it before they exchange any
//                job data, and all else is sealed: outsiders can neither read nor change it
//   a unique id  the same with the id's nonce: safe from anyone who has not seen the id
//   neither      nothing is proved or hidden: anyone who can read or change the rendezvous'
//                traffic, or reach the host first, can attack it
//
// Limits: kMaxRanks, kMaxBlobBytes per rank. Blocks the calling thread for `patience` and up to a
// few seconds more, or as long as a name lookup takes. Any thread; several rendezvous may run at a
// time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/message.h"
#include "launch/launch.h"
#include "net/address.h"
#include "net/system_call.h"
#include "wire/key.h"

namespace spillway::comm {

// ------------------------------------------------------------------ unique ids

// 128 opaque bytes that bring ranks together, like ncclUniqueId. Any one rank makes them, and the
// caller moves them to the others by its own means (a store, a file, MPI). All ranks pass them to
// exchange().
//
//   magic 8, version 2, family 2, port 2, zero 2, address 16, nonce 16, zero 76, check 4 = 128
//
// Making an id opens the socket at which the maker will host the rendezvous, so the other ranks may
// come first. The process owns the socket until one of its ranks joins or the id is discarded; a
// fork()ed child does not own it. Limit: kMaxUnusedIds per process. Any thread.

struct UniqueId {
  std::array<std::uint8_t, 128> bytes{};

  friend bool operator==(const UniqueId&, const UniqueId&) = default;
};
static_assert(std::is_trivially_copyable_v<UniqueId> && sizeof(UniqueId) == 128);

inline constexpr std::size_t kMaxUnusedIds = 64;

// Listens at `address`, which the other ranks must be able to reach (net/address.h); port 0 means
// any.
base::Result<UniqueId> create_unique_id(const net::SocketAddress& address);
// The same at an address of this host that others can reach, chosen by the environment.
base::Result<UniqueId> create_reachable_unique_id();

// Discards an id that no rank will join. Does nothing in a process that did not make it.
void discard_unique_id(const UniqueId& id);

struct UniqueIdContent {
  net::SocketAddress address{};
  launch::Nonce nonce{};
};

UniqueId encode_unique_id(const UniqueIdContent& content);
base::Result<UniqueIdContent> parse_unique_id(const UniqueId& id);
launch::RendezvousPoint point_of(const UniqueIdContent& content);

// The id's socket, for the first caller in the process that made it; else invalid.
net::UniqueFd take_listener(const UniqueIdContent& content);

// ------------------------------------------------------------------ the exchange

// ------------------------------------------------------------------ the result

// Clients that the host rejected, by StrangerKind.
struct StrangerCounts {
  std::array<std::uint64_t, kStrangerKinds> counts{};

  std::uint64_t& operator[](StrangerKind kind) { return counts[static_cast<std::size_t>(kind)]; }
  std::uint64_t operator[](StrangerKind kind) const {
    return counts[static_cast<std::size_t>(kind)];
  }
  std::uint64_t total() const;
  // "rejected: 2 did not prove that they belong to this job; 1 ..."; empty if there were none.
  std::string to_string() const;
};

// Every rank's result: the blobs of all ranks, and the key of the run.
//
//   run key = HKDF(credential's key | the host's drawn key, SHA-256(all ranks' randoms), label)
//
// All ranks of a run have the same key, and no other run has it, because every rank adds 32 fresh
// bytes. With a secret, outsiders cannot know the key. Without one, anyone who has read the
// rendezvous' traffic can derive it.
struct RendezvousResult {
  std::vector<Blob> blobs{};  // by rank
  wire::RunKey key{};
  StrangerCounts strangers{};  // counted at the host
};

base::Result<RendezvousResult> result_of(const Credential& credential, const Gather& gather);

// ------------------------------------------------------------------ what ranks call

// Rank 0 is the host. `secret`: the job's secret, or empty.
base::Result<RendezvousResult> exchange(const launch::Launch& launch, base::ByteView secret,
                                        const Blob& own, base::Duration patience);

struct RankOfWorld {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
};

// The same for ranks that share an id. The process that made the id must take part: it is the host.
base::Result<RendezvousResult> exchange(const UniqueId& id, RankOfWorld member,
                                        base::ByteView secret, const Blob& own,
                                        base::Duration patience);

// For a world of one: a fresh key that no other process has.
base::Result<RendezvousResult> meet_alone(const Blob& own);

// ------------------------------------------------------------------ the two sides, for exchange()

struct Listening;    // socket.h
struct Participant;  // register.h

// host.cc: collects a blob from every rank and sends all of them to all.
inline constexpr std::size_t kStrangerBytes = 128 * 1024;  // memory per stranger, at most
base::Result<RendezvousResult> host_rendezvous(Listening listening, const Participant& participant,
                                               const Credential& credential, const Blob& own);

// joiner.cc: finds the host, and receives the blobs of all ranks from it. `host` names the host in
// messages: "rank 0".
base::Result<RendezvousResult> join_rendezvous(const launch::RendezvousPoint& point,
                                               const Participant& participant,
                                               const Credential& credential, const Blob& own,
                                               const std::string& host);

}  // namespace spillway::comm
