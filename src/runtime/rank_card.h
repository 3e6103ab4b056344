// SPDX-License-Identifier: Apache-2.0
//
// What a rank tells the others when they meet: where its data goes, and what its network is like;
// and what follows from everybody's cards for all of them. A plain value, written as one line of
// text; any bytes give a card or an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "collective/coded/chunk_layout.h"
#include "net/address.h"
#include "net/carrier.h"
#include "packetize/packet_plan.h"
#include "runtime/rendezvous/message.h"

namespace spillway::runtime {

inline constexpr std::size_t kMemoryNameDigits = 32;
inline constexpr std::size_t kMaxMemoryDomain = 256;

// How ranks of the same machine come by this one's segment (local_handover.h). All of it is empty
// where it shares none.
struct MemoryCard {
  std::string domain{};  // the same text for ranks that may share
  std::string name{};    // of the door where the segment is handed out: hexadecimal digits
  std::string token{};   // that whoever comes to the door must know: the same
};

struct RankCard {
  net::SocketAddress data{};  // where datagrams for this rank go
  unsigned mtu = 1500;
  unsigned trim_bytes = 0;
  std::string machine{};  // the same text for ranks of one machine
  net::Carrier carrier = net::Carrier::kAuto;
  std::uint16_t rack_ranks = 0;  // ranks under one switch; 0: not known
  collective::ChunkRule chunks = collective::ChunkRule::kStriped;
  MemoryCard memory{};
};

// Whether they may share memory.
inline bool may_share(const RankCard& one, const RankCard& other) {
  return !one.memory.domain.empty() && one.memory.domain == other.memory.domain;
}

Blob to_blob(const RankCard& card);
base::Result<RankCard> parse_rank_card(const Blob& blob);

// What all ranks' packets fit: the smallest MTU, and one trim size.
base::Result<packetize::PacketLimits> common_packet_limits(std::span<const RankCard> cards);

// All workers must say the same of racks and chunks: plans follow from it.
base::Status check_plans(std::span<const RankCard> workers);

// A name of this machine that no other has, until it is started again.
std::string machine_name();

}  // namespace spillway::runtime
