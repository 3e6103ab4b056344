// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "comm/carrier.h"
#include "comm/rendezvous/rendezvous.h"
#include "observe/log.h"

namespace spillway::runtime {
namespace {

// `most`: largest UDP payload, in bytes, that the path takes.
base::Status check_path(std::uint16_t peer, const net::SocketAddress& address, unsigned most,
                        const packetize::PacketLimits& limits) {
  const unsigned path_mtu = most + limits.datagram_overhead();
  if (path_mtu >= limits.mtu || most >= SPILLWAY_MAX_PACKET) {
    return {};
  }
  return base::invalid_argument(fmt::format(
      "the interface or route towards rank {} ({}) takes packets of {} bytes, but the ranks agreed "
      "on {}; set SPILLWAY_MTU={} at every rank",
      peer, address.to_string(), path_mtu, limits.mtu, path_mtu));
}

bool is_loopback(const net::SocketAddress& address) {
  const std::string text = address.to_string();
  return text.starts_with("127.") || text.starts_with("[::1]");
}

// Warns once per process: jobs make dozens of communicators.
void warn_without_secret(std::span<const net::SocketAddress> addresses, bool has_id) {
  static std::atomic<bool> said = false;
  if (std::all_of(addresses.begin(), addresses.end(), is_loopback) || said.exchange(true)) {
    return;
  }
  log_warn(
      "this job has no secret: whoever can read {} can join it, and read and forge its packets; "
      "set SPILLWAY_SECRET_FILE at every rank unless the network is yours alone",
      has_id ? "the unique id on its way to the ranks" : "what the ranks say when they meet");
}

}  // namespace

RankCard own_card(const Preparation& preparation, const net::SocketAddress& local,
                  const MemoryCard& memory) {
  RankCard own;
  own.data = local;
  own.mtu = preparation.mtu;
  own.trim_bytes = preparation.trim_bytes;
  own.machine = machine_name();
  own.carrier = preparation.driver.carrier;
  own.rack_ranks = preparation.rack_ranks;
  own.chunks = preparation.chunks;
  own.memory = memory;
  return own;
}

base::Result<Introductions> meet(const Preparation& preparation, const std::optional<UniqueId>& id,
                                 const Blob& own) {
  const base::ByteView secret = preparation.secret.bytes();
  const base::Result<Meeting> meeting =
      id ? exchange(*id, {preparation.group.rank, preparation.group.world}, secret, own,
                    preparation.rendezvous_patience)
         : exchange(preparation.launch, secret, own, preparation.rendezvous_patience);
  if (!meeting.ok()) {
    return meeting.status();
  }
  base::Result<Introductions> introductions =
      introduced(meeting->blobs, meeting->key, preparation.group.workers());
  if (introductions.ok() && preparation.group.rank == 0 && secret.empty()) {
    warn_without_secret(addresses_of(preparation, introductions->cards), id.has_value());
  }
  return introductions;
}

base::Result<Introductions> introduced(std::span<const Blob> blobs, const wire::RunKey& key,
                                       std::uint16_t workers) {
  Introductions introductions{.cards = {}, .run_key = key};
  for (const Blob& blob : blobs) {
    const base::Result<RankCard> card = parse_rank_card(blob);
    if (!card.ok()) {
      return card.status();
    }
    introductions.cards.push_back(*card);
  }
  const std::span<const RankCard> cards = introductions.cards;
  if (base::Status status = check_carriers(cards); !status.ok()) {
    return status;
  }
  if (base::Status status = check_plans(cards.first(workers)); !status.ok()) {
    return status;
  }
  return introductions;
}

base::Result<RunIdentity> identity_of(const wire::RunKey& key, bool encrypt) {
  constexpr std::uint64_t kFirstEpoch = 1;
  std::array<std::uint8_t, 10> drawn{};
  if (base::Status status = wire::derive(key, {.use = wire::KeyUse::kNumbers}, drawn);
      !status.ok()) {
    return status;
  }
  RunIdentity run;
  run.job = {.id = base::load_le<std::uint16_t>(drawn.data()),
             .epoch = kFirstEpoch,
             .seed = base::load_le<std::uint64_t>(drawn.data() + 2)};
  run.epoch = {
      .job = run.job.id,
      .number = kFirstEpoch,
      .session = {.key = key,
                  .protection = encrypt ? wire::Protection::kEncryption : wire::Protection::kTags}};
  return run;
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

base::Status add_peers(std::span<const net::SocketAddress> addresses,
                       std::span<const RankCard> cards, std::uint16_t rank,
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
    driver.add_source(cards[peer].data);
    log_info(LogSubsystem::kNet, "rank {} is at {}", peer, address.to_string());
  }
  return {};
}

unsigned ranks_here(std::span<const RankCard> cards, std::uint16_t rank) {
  return static_cast<unsigned>(std::count_if(cards.begin(), cards.end(), [&](const RankCard& card) {
    return card.machine == cards[rank].machine;
  }));
}

std::optional<MemoryOffer> offer_memory(const Preparation& preparation) {
  // If the launch names the peers' addresses, the ranks are meant to use the network.
  if (!preparation.local_copy || !preparation.launch.peers.empty() ||
      preparation.group.world == 1) {
    return std::nullopt;
  }
  base::Result<MemoryOffer> offer = MemoryOffer::make();
  if (!offer.ok()) {
    log_warn("memory is not shared with ranks of this machine: {}", offer.status().message());
    return std::nullopt;
  }
  return std::move(offer).value();
}

std::unique_ptr<LocalMemory> memory_of(std::optional<MemoryOffer> offer,
                                       std::span<const RankCard> cards, std::uint16_t rank,
                                       base::Duration patience) {
  const bool has_neighbours = std::any_of(cards.begin(), cards.end(), [&](const RankCard& card) {
    return &card != &cards[rank] && may_share(card, cards[rank]);
  });
  if (!offer || !has_neighbours) {
    return nullptr;
  }
  return std::make_unique<LocalMemory>(
      LocalMemory::share(std::move(*offer), cards, rank, patience));
}

}  // namespace spillway::runtime
