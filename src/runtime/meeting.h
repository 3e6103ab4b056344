// SPDX-License-Identifier: Apache-2.0
//
// The first thing a communicator does: its rank shows its card and gets everybody's, and from these
// follows whom it reaches how.
//
// Functions of one thread. meet() waits for the others, at most as long as the preparation says;
// nothing else here waits.
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

namespace spillway::runtime {

// The cards of all ranks, this one's, whose data goes to `local`, included. With an id they meet by
// that; else where their launcher said.
base::Result<std::vector<RankCard>> meet(const Preparation& preparation,
                                         const std::optional<UniqueId>& id,
                                         const net::SocketAddress& local);

// Where to send to each rank: where the launch says, or else its card.
std::vector<net::SocketAddress> addresses_of(const Preparation& preparation,
                                             std::span<const RankCard> cards);

// Tells the driver of all other ranks. Fails, saying what would help, where one is out of reach or
// the path to it takes smaller packets than all ranks are to use.
base::Status add_peers(std::span<const net::SocketAddress> addresses, std::uint16_t rank,
                       const packetize::PacketLimits& limits, net::TransportDriver& driver);

// Ranks on this rank's machine, itself included.
unsigned ranks_here(std::span<const RankCard> cards, std::uint16_t rank);

// Of the ranks whose memory this one can read; null if there are none.
std::unique_ptr<LocalMemory> memory_of(std::span<const RankCard> cards, std::uint16_t rank);

}  // namespace spillway::runtime
