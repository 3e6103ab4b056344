// SPDX-License-Identifier: Apache-2.0
//
// Flows over the kernel's TCP: one connection per flow, opened before the first round, as in Gloo
// and MPI.
#pragma once

#include <string>
#include <vector>

#include "net/address.h"
#include "net/system_call.h"
#include "tools/bench/incast/flow_carrier.h"

namespace spillway::bench {

struct TcpCarrierOptions {
  std::string congestion_control;         // "cubic", "bbr"; empty: the kernel's default
  std::vector<net::SocketAddress> peers;  // by rank; a rank listens at its own
};

class TcpCarrier final : public FlowCarrier {
 public:
  TcpCarrier(const CarrierConfig& config, const TcpCarrierOptions& options);

  void prepare(std::uint32_t round) override;
  std::vector<FlowOutcome> carry(std::uint32_t round, base::Instant start) override;

 private:
  struct Leg {
    scenario::Flow flow;
    std::uint32_t number = 0;
    net::UniqueFd stream;
  };

  void connect_to(const net::SocketAddress& address, const std::string& congestion_control,
                  Leg& leg);
  void accept_all(const net::UniqueFd& listener);

  CarrierConfig config_;
  std::vector<Leg> outgoing_;
  std::vector<Leg> incoming_;
};

}  // namespace spillway::bench
