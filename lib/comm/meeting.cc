// SPDX-License-Identifier: Apache-2.0
#include "comm/preparation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <sstream>
#include <string>

#include "comm/rendezvous/rendezvous.h"
#include "observe/log.h"

namespace spillway::comm {

// ------------------------------------------------------------------ cards

namespace {

constexpr unsigned kMaxMtu = 9000;
constexpr unsigned kMinMtu = 576;

base::Status other_fields() {
  return base::invalid_argument("a rank's card has other fields; do all ranks run one version?");
}

bool is_memory_name(const std::string& text) {
  return text.size() == kMemoryNameDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// The memory card has all three fields or none.
base::Status read_memory_card(std::istringstream& text, MemoryCard& card) {
  if (!(text >> card.domain)) {
    return {};
  }
  if (!(text >> card.name >> card.token) || card.domain.size() > kMaxMemoryDomain ||
      !is_memory_name(card.name) || !is_memory_name(card.token)) {
    return other_fields();
  }
  return {};
}

}  // namespace

Blob to_blob(const RankCard& card) {
  std::string text =
      fmt::format("{} {} {} {} {} {}", card.data.to_string(), card.mtu, card.trim_bytes,
                  card.machine, net::name_of(card.carrier), card.rack_ranks);
  if (!card.memory.domain.empty()) {
    text += fmt::format(" {} {} {}", card.memory.domain, card.memory.name, card.memory.token);
  }
  return {text.begin(), text.end()};
}

base::Result<RankCard> parse_rank_card(const Blob& blob) {
  std::istringstream text(std::string(blob.begin(), blob.end()));
  RankCard card;
  std::string address;
  std::string carrier;
  if (!(text >> address >> card.mtu >> card.trim_bytes >> card.machine >> carrier >>
        card.rack_ranks)) {
    return other_fields();
  }
  const std::optional<net::Carrier> named = net::carrier_named(carrier);
  if (!named) {
    return other_fields();
  }
  card.carrier = *named;
  const base::Result<net::SocketAddress> data = net::SocketAddress::parse(address);
  if (!data.ok()) {
    return data.status();
  }
  card.data = *data;
  if (base::Status status = read_memory_card(text, card.memory); !status.ok()) {
    return status;
  }
  return card;
}

base::Result<packetize::PacketLimits> common_packet_limits(std::span<const RankCard> cards) {
  packetize::PacketLimits limits{.mtu = kMaxMtu, .trim_bytes = cards.front().trim_bytes};
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    limits.mtu = std::min(limits.mtu, cards[rank].mtu);
    if (cards[rank].trim_bytes != limits.trim_bytes) {
      return base::invalid_argument(fmt::format(
          "rank 0 says the network trims to {} bytes, rank {} says {}; set SPILLWAY_TRIM_BYTES to "
          "the same everywhere",
          limits.trim_bytes, rank, cards[rank].trim_bytes));
    }
    if (cards[rank].data.is_ipv6()) {
      limits.ip = packetize::IpVersion::kV6;
    }
  }
  if (limits.mtu < kMinMtu) {
    return base::invalid_argument(
        fmt::format("an MTU of {} is too small; {} is the least", limits.mtu, kMinMtu));
  }
  return limits;
}

base::Status check_plans(std::span<const RankCard> workers) {
  for (std::size_t rank = 1; rank < workers.size(); ++rank) {
    if (workers[rank].rack_ranks != workers[0].rack_ranks) {
      return base::invalid_argument(
          fmt::format("rank 0 has {} ranks in a rack (SPILLWAY_RACK_RANKS), rank {} has {}; set "
                      "SPILLWAY_RACK_RANKS to the same everywhere",
                      workers[0].rack_ranks, rank, workers[rank].rack_ranks));
    }
  }
  return {};
}

std::string machine_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  return file >> name ? name : "unknown";
}

base::Status check_carriers(std::span<const RankCard> cards) {
  for (std::size_t rank = 1; rank < cards.size(); ++rank) {
    if (cards[rank].carrier != cards[0].carrier) {
      return base::invalid_argument(fmt::format(
          "rank 0 sends over {} (SPILLWAY_CARRIER={}), rank {} over {} (={}); set SPILLWAY_CARRIER "
          "to the same everywhere",
          protocols_of(cards[0].carrier), net::name_of(cards[0].carrier), rank,
          protocols_of(cards[rank].carrier), net::name_of(cards[rank].carrier)));
    }
  }
  return {};
}

std::string_view protocols_of(net::Carrier carrier) {
  switch (carrier) {
    case net::Carrier::kUdp:
      return "UDP";
    case net::Carrier::kTcp:
      return "TCP";
    case net::Carrier::kAuto:
      break;
  }
  return "UDP or TCP";
}

// ------------------------------------------------------------------ meeting

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
  observe::log_warn(
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
  own.memory = memory;
  return own;
}

base::Result<GroupInfo> meet(const Preparation& preparation, const std::optional<UniqueId>& id,
                             const Blob& own) {
  const base::ByteView secret = preparation.secret.bytes();
  const base::Result<RendezvousResult> meeting =
      id ? exchange(*id, {preparation.group.rank, preparation.group.world}, secret, own,
                    preparation.rendezvous_patience)
         : exchange(preparation.launch, secret, own, preparation.rendezvous_patience);
  if (!meeting.ok()) {
    return meeting.status();
  }
  base::Result<GroupInfo> info =
      group_info_from(meeting->blobs, meeting->key, preparation.group.workers());
  if (info.ok() && preparation.group.rank == 0 && secret.empty()) {
    warn_without_secret(addresses_of(preparation, info->cards), id.has_value());
  }
  return info;
}

base::Result<GroupInfo> group_info_from(std::span<const Blob> blobs, const wire::RunKey& key,
                                        std::uint16_t workers) {
  GroupInfo info{.cards = {}, .run_key = key};
  for (const Blob& blob : blobs) {
    const base::Result<RankCard> card = parse_rank_card(blob);
    if (!card.ok()) {
      return card.status();
    }
    info.cards.push_back(*card);
  }
  const std::span<const RankCard> cards = info.cards;
  if (base::Status status = check_carriers(cards); !status.ok()) {
    return status;
  }
  if (base::Status status = check_plans(cards.first(workers)); !status.ok()) {
    return status;
  }
  return info;
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
    observe::log_info(observe::LogSubsystem::kNet, "rank {} is at {}", peer, address.to_string());
  }
  return {};
}

bool may_stream(const Preparation& preparation, std::span<const RankCard> cards) {
  const bool all_share_memory = std::all_of(cards.begin(), cards.end(), [&](const RankCard& card) {
    return may_share(cards.front(), card);
  });
  return preparation.driver.carrier == net::Carrier::kAuto && !all_share_memory;
}

collective::Hosts hosts_of(std::span<const RankCard> cards) {
  std::vector<std::uint32_t> host_of;
  for (std::uint32_t rank = 0; rank < cards.size(); ++rank) {
    std::uint32_t first = 0;
    while (first < rank && !may_share(cards[first], cards[rank])) {
      ++first;
    }
    host_of.push_back(first);
  }
  return collective::Hosts(host_of);
}

unsigned ranks_here(std::span<const RankCard> cards, std::uint16_t rank) {
  return static_cast<unsigned>(std::count_if(cards.begin(), cards.end(), [&](const RankCard& card) {
    return card.machine == cards[rank].machine;
  }));
}

}  // namespace spillway::comm
