// SPDX-License-Identifier: Apache-2.0
//
// The first step of a communicator: ranks exchange cards, and each derives how it reaches its
// peers.
//
// One thread. meet() waits for the other ranks, at most as long as the preparation says.
// memory_of() waits for ranks of its machine, at most `patience`. Nothing else here waits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/local_memory.h"
#include "comm/preparation.h"
#include "comm/rank_card.h"
#include "comm/rendezvous/unique_id.h"
#include "net/transport_driver.h"
#include "wire/key.h"

namespace spillway::runtime {

// What a rank knows after it has met the others.
struct Introductions {
  std::vector<RankCard> cards{};  // of all ranks, including this one
  wire::RunKey run_key{};         // known only to these ranks, new for each run
};

// `local`: the address at which this rank receives data.
RankCard own_card(const Preparation& preparation, const net::SocketAddress& local,
                  const MemoryCard& memory);

// Meets at the id's address if there is an id, else at the launcher's. Rank 0 warns, once per
// process, if a job without a secret leaves its machine.
base::Result<Introductions> meet(const Preparation& preparation, const std::optional<UniqueId>& id,
                                 const Blob& own);
// Makes introductions from cards obtained elsewhere; the first `workers` are the application's
// ranks.
base::Result<Introductions> introduced(std::span<const Blob> cards, const wire::RunKey& key,
                                       std::uint16_t workers);

// Derived from a run's key: the numbers that tell its packets from those of other runs, and the
// session that protects them.
struct RunIdentity {
  packetize::Job job{};
  transport::Epoch epoch{};
};
base::Result<RunIdentity> identity_of(const wire::RunKey& key, bool encrypt);

// The address of each rank: the launch's if it names one, else its card's.
std::vector<net::SocketAddress> addresses_of(const Preparation& preparation,
                                             std::span<const RankCard> cards);

// Adds all other ranks to the driver. Fails, with a remedy, if a rank is unreachable or the path to
// it takes smaller packets than the agreed size. Datagrams may come from the launch's address of a
// peer or from its card's.
base::Status add_peers(std::span<const net::SocketAddress> addresses,
                       std::span<const RankCard> cards, std::uint16_t rank,
                       const packetize::PacketLimits& limits, net::TransportDriver& driver);

// Number of ranks on this rank's machine, including itself.
unsigned ranks_here(std::span<const RankCard> cards, std::uint16_t rank);

// What this rank can share with others of its machine; nullopt if sharing is off or fails.
std::optional<MemoryOffer> offer_memory(const Preparation& preparation);

// Shares memory with the ranks whose cards allow it; null if there are none. All ranks must pass
// the same cards. Takes at most `patience`.
std::unique_ptr<LocalMemory> memory_of(std::optional<MemoryOffer> offer,
                                       std::span<const RankCard> cards, std::uint16_t rank,
                                       base::Duration patience);

}  // namespace spillway::runtime
