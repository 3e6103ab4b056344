// SPDX-License-Identifier: Apache-2.0
#include "comm/rank_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace spillway::runtime {
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
  std::string text = fmt::format("{} {} {} {} {} {} {}", card.data.to_string(), card.mtu,
                                 card.trim_bytes, card.machine, net::name_of(card.carrier),
                                 card.rack_ranks, collective::chunk_rule_name(card.chunks));
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
  std::string chunks;
  if (!(text >> address >> card.mtu >> card.trim_bytes >> card.machine >> carrier >>
        card.rack_ranks >> chunks)) {
    return other_fields();
  }
  const std::optional<net::Carrier> named = net::carrier_named(carrier);
  const std::optional<collective::ChunkRule> rule = collective::chunk_rule_named(chunks);
  if (!named || !rule) {
    return other_fields();
  }
  card.carrier = *named;
  card.chunks = *rule;
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
    if (workers[rank].chunks != workers[0].chunks) {
      return base::invalid_argument(
          fmt::format("rank 0 has {} chunks (SPILLWAY_CHUNKS), rank {} has {} ones; set "
                      "SPILLWAY_CHUNKS to the same everywhere",
                      collective::chunk_rule_name(workers[0].chunks), rank,
                      collective::chunk_rule_name(workers[rank].chunks)));
    }
  }
  return {};
}

std::string machine_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  return file >> name ? name : "unknown";
}

}  // namespace spillway::runtime
