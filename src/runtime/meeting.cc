// SPDX-License-Identifier: Apache-2.0
#include "runtime/meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "runtime/observe/log.h"
#include "runtime/rendezvous/rendezvous.h"

namespace spillway::runtime {
namespace {

RankCard own_card(const Preparation& preparation, const net::SocketAddress& local) {
  RankCard own;
  own.data = local;
  own.mtu = preparation.mtu;
  own.trim_bytes = preparation.trim_bytes;
  own.machine = machine_name();
  own.process = ::getpid();
  // Who is told where the others are has a network that is meant to be used.
  own.memory_domain =
      preparation.launch.peers.empty() && preparation.local_copy ? memory_domain() : "";
  return own;
}

// `most`: bytes of UDP payload that the path takes.
base::Status check_path(std::uint16_t peer, const net::SocketAddress& address, unsigned most,
                        const packetize::PacketLimits& limits) {
  const unsigned path_mtu = most + limits.datagram_overhead();
  if (path_mtu >= limits.mtu || most >= SPILLWAY_MAX_PACKET) {
    return {};
  }
  return base::invalid_argument(fmt::format(
      "the path to rank {} ({}) takes packets of {} bytes, but all interfaces say {}; set "
      "SPILLWAY_MTU={} at every rank",
      peer, address.to_string(), path_mtu, limits.mtu, path_mtu));
}

}  // namespace

base::Result<std::vector<RankCard>> meet(const Preparation& preparation,
                                         const std::optional<UniqueId>& id,
                                         const net::SocketAddress& local) {
  const RankCard own = own_card(preparation, local);
  if (preparation.group.world == 1) {
    if (id) {
      discard_unique_id(*id);  // nobody will come
    }
    return std::vector{own};
  }
  const base::Result<std::vector<Blob>> blobs =
      id ? exchange(*id, {preparation.group.rank, preparation.group.world}, to_blob(own),
                    preparation.rendezvous_patience)
         : exchange(preparation.launch, to_blob(own), preparation.rendezvous_patience);
  if (!blobs.ok()) {
    return blobs.status();
  }
  std::vector<RankCard> cards;
  for (const Blob& blob : *blobs) {
    const base::Result<RankCard> card = parse_rank_card(blob);
    if (!card.ok()) {
      return card.status();
    }
    cards.push_back(*card);
  }
  return cards;
}

std::vector<net::SocketAddress> addresses_of(const Preparation& preparation,
                                             std::span<const RankCard> cards) {
  std::vector<net::SocketAddress> addresses;
  for (std::size_t peer = 0; peer < cards.size(); ++peer) {
    addresses.push_back(preparation.launch.peers.empty() ? cards[peer].data
                                                         : preparation.launch.peers[peer]);
  }
  return addresses;
}

base::Status add_peers(std::span<const net::SocketAddress> addresses, std::uint16_t rank,
                       const packetize::PacketLimits& limits, net::TransportDriver& driver) {
  for (std::uint16_t peer = 0; peer < addresses.size(); ++peer) {
    if (peer == rank) {
      continue;
    }
    const net::SocketAddress& address = addresses[peer];
    const base::Result<unsigned> limit = driver.add_peer(peer, address);
    if (!limit.ok()) {
      return base::Status(
          limit.status().code(),
          fmt::format("rank {} is at {}, and from here: {}; let it use an interface that this host "
                      "can reach (SPILLWAY_SOCKET_IFNAME at rank {})",
                      peer, address.to_string(), limit.status().message(), peer));
    }
    if (base::Status status = check_path(peer, address, *limit, limits); !status.ok()) {
      return status;
    }
    log_info(LogSubsystem::kNet, "rank {} is at {}", peer, address.to_string());
  }
  return {};
}

unsigned ranks_here(std::span<const RankCard> cards, std::uint16_t rank) {
  return static_cast<unsigned>(std::count_if(cards.begin(), cards.end(), [&](const RankCard& card) {
    return card.machine == cards[rank].machine;
  }));
}

std::unique_ptr<LocalMemory> memory_of(std::span<const RankCard> cards, std::uint16_t rank) {
  const std::string& domain = cards[rank].memory_domain;
  std::vector<std::optional<pid_t>> processes(cards.size());
  std::size_t reached = 0;
  for (std::size_t peer = 0; peer < cards.size(); ++peer) {
    if (peer != rank && !domain.empty() && cards[peer].memory_domain == domain) {
      processes[peer] = cards[peer].process;
      ++reached;
    }
  }
  return reached == 0 ? nullptr : std::make_unique<LocalMemory>(std::move(processes));
}

}  // namespace spillway::runtime
