// SPDX-License-Identifier: Apache-2.0
//
// The first thing a communicator does: its rank shows its card and gets everybody's, and from these
// follows whom it reaches how.
//
// Functions of one thread. meet() waits for the others, at most as long as the preparation says,
// memory_of() for those of its machine, at most as long as it is told; nothing else here waits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "net/transport_driver.h"
#include "runtime/local_memory.h"
#include "runtime/preparation.h"
#include "runtime/rank_card.h"
#include "runtime/rendezvous/unique_id.h"
#include "wire/key.h"

namespace spillway::runtime {

// What a rank knows once it has met the others.
struct Introductions {
  std::vector<RankCard> cards{};  // of all ranks, this one's included
  wire::RunKey run_key{};         // theirs alone, and of this run
};

// This rank's data goes to `local`.
RankCard own_card(const Preparation& preparation, const net::SocketAddress& local,
                  const MemoryCard& memory);

// With an id they meet by that; else where their launcher said. Rank 0 warns, once in a process, of
// a job without a secret that leaves its machine.
base::Result<Introductions> meet(const Preparation& preparation, const std::optional<UniqueId>& id,
                                 const Blob& own);
// Of cards that came by other means; the first `workers` are the application's ranks.
base::Result<Introductions> introduced(std::span<const Blob> cards, const wire::RunKey& key,
                                       std::uint16_t workers);

// What follows from a run's key: the numbers by which its packets are told from others', and the
// keys they are sealed with.
struct RunIdentity {
  packetize::Job job{};
  transport::Epoch epoch{};
};
base::Result<RunIdentity> identity_of(const wire::RunKey& key, bool encrypt);

// Where to send to each rank: where the launch says, or else its card.
std::vector<net::SocketAddress> addresses_of(const Preparation& preparation,
                                             std::span<const RankCard> cards);

// Tells the driver of all other ranks. Fails, saying what would help, where one is out of reach or
// the path to it takes smaller packets than all ranks are to use.
// Their datagrams may come from where the launch says, or from where their cards do.
base::Status add_peers(std::span<const net::SocketAddress> addresses,
                       std::span<const RankCard> cards, std::uint16_t rank,
                       const packetize::PacketLimits& limits, net::TransportDriver& driver);

// Ranks on this rank's machine, itself included.
unsigned ranks_here(std::span<const RankCard> cards, std::uint16_t rank);

// What this rank can share with others of its machine; nothing where it shall not, or cannot.
std::optional<MemoryOffer> offer_memory(const Preparation& preparation);

// Shared with those of them that may share, by the same cards as they go by; null if there are
// none. Takes no longer than `patience`.
std::unique_ptr<LocalMemory> memory_of(std::optional<MemoryOffer> offer,
                                       std::span<const RankCard> cards, std::uint16_t rank,
                                       base::Duration patience);

}  // namespace spillway::runtime
