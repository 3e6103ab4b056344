// SPDX-License-Identifier: Apache-2.0
//
// What a rank tells the others when they meet (its data address and its network), and what all
// ranks derive from all cards. A plain value, written as one line of text. Any bytes parse to a
// card or to an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "collective/coded/chunk_layout.h"
#include "comm/rendezvous/message.h"
#include "net/address.h"
#include "net/carrier.h"
#include "packetize/packet_plan.h"

namespace spillway::runtime {

inline constexpr std::size_t kMemoryNameDigits = 32;
inline constexpr std::size_t kMaxMemoryDomain = 256;

// How ranks of the same machine get this rank's segment (local_handover.h). All fields are empty if
// it shares none.
struct MemoryCard {
  std::string domain{};  // equal for ranks that may share
  std::string name{};    // of the MemoryDoor, in hexadecimal digits
  std::string token{};   // that visitors must present, in hexadecimal digits
};

struct RankCard {
  net::SocketAddress data{};  // receives this rank's datagrams
  unsigned mtu = 1500;
  unsigned trim_bytes = 0;
  std::string machine{};  // equal for ranks of one machine
  net::Carrier carrier = net::Carrier::kAuto;
  std::uint16_t rack_ranks = 0;  // ranks under one switch; 0 if unknown
  collective::ChunkRule chunks = collective::ChunkRule::kStriped;
  MemoryCard memory{};
};

// True if the two ranks may share memory.
inline bool may_share(const RankCard& one, const RankCard& other) {
  return !one.memory.domain.empty() && one.memory.domain == other.memory.domain;
}

Blob to_blob(const RankCard& card);
base::Result<RankCard> parse_rank_card(const Blob& blob);

// The packet limits common to all ranks: the smallest MTU, and the trim size on which all must
// agree.
base::Result<packetize::PacketLimits> common_packet_limits(std::span<const RankCard> cards);

// Fails unless all workers name the same racks and chunks: plans follow from them.
base::Status check_plans(std::span<const RankCard> workers);

// A name unique to this machine until it reboots.
std::string machine_name();

}  // namespace spillway::runtime
