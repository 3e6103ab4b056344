// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank_card.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

namespace spillway::runtime {

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

std::string machine_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  return file >> name ? name : "unknown";
}

}  // namespace spillway::runtime
