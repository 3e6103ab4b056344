// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace spillway::runtime {
namespace {

constexpr unsigned kMaxMtu = 9000;
constexpr unsigned kMinMtu = 576;

}  // namespace

Blob to_blob(const RankCard& card) {
  const std::string text =
      fmt::format("{} {} {} {} {} {}", card.data.to_string(), card.mtu, card.trim_bytes,
                  card.machine, card.process, card.memory_domain);
  return {text.begin(), text.end()};
}

base::Result<RankCard> parse_rank_card(const Blob& blob) {
  std::istringstream text(std::string(blob.begin(), blob.end()));
  RankCard card;
  std::string address;
  if (!(text >> address >> card.mtu >> card.trim_bytes >> card.machine >> card.process)) {
    return base::invalid_argument("a rank's card has other fields; do all ranks run one version?");
  }
  const base::Result<net::SocketAddress> data = net::SocketAddress::parse(address);
  if (!data.ok()) {
    return data.status();
  }
  card.data = *data;
  text >> card.memory_domain;
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

std::string machine_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  return file >> name ? name : "unknown";
}

}  // namespace spillway::runtime
