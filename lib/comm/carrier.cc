// SPDX-License-Identifier: Apache-2.0
#include "comm/carrier.h"

#include <fmt/format.h>

#include "wire/frame_overhead.h"
#include "wire/packet.h"

namespace spillway::runtime {
namespace {

// Over a stream, this much of a message leaves without credit: it covers most of a message, and the
// receiver grants the rest at once. Early payloads are buffered, because a drop would force a
// retransmission.
constexpr base::Bytes kStreamUnsolicited = base::bytes(256 * 1024);
constexpr std::size_t kStreamEarlyBytes = 16 * 1024 * 1024;

void tune_for_stream(Preparation& preparation) {
  preparation.mtu = SPILLWAY_MAX_PACKET + spillway_datagram_overhead(/*is_ipv6=*/false);
  preparation.trim_bytes = 0;
  preparation.driver.send_rate = {};
  transport::ExchangeConfig& exchange = preparation.driver.endpoint.exchange;
  exchange.paths = 1;
  exchange.burst_packets = 16;
  exchange.report_packets = 255;
  exchange.trimmed_target.reset();
  exchange.unsolicited = kStreamUnsolicited;
  exchange.probe_min = base::milliseconds(20);
  preparation.driver.endpoint.limits.early_bytes = kStreamEarlyBytes;
}

}  // namespace

base::Status take_carrier(const base::Environment& environment, Preparation& preparation) {
  const base::Result<net::Carrier> carrier = net::carrier_from(environment);
  if (!carrier.ok()) {
    return carrier.status();
  }
  preparation.driver.carrier = *carrier;
  preparation.driver.tcp = net::tcp_options_from(environment);
  if (*carrier == net::Carrier::kTcp) {
    tune_for_stream(preparation);
  }
  return {};
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

}  // namespace spillway::runtime
