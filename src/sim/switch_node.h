// SPDX-License-Identifier: Apache-2.0
//
// A simulated switch: sends each packet that arrives to one of the ports that lead to its
// destination. Among equally short ways it chooses per flow or per packet (Spreading); a way whose
// link is down is passed over while there is another. One thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/event_queue.h"
#include "sim/output_port.h"
#include "sim/packet.h"
#include "sim/routing.h"
#include "sim/topology.h"

namespace spillway::sim {

class SwitchNode final : public Actor {
 public:
  SwitchNode(PacketPool& pool, Spreading spreading, std::uint64_t salt)
      : pool_(&pool), spreading_(spreading), salt_(salt) {}

  // Ports in the order that routing numbers them; routes once they are all there.
  void add_port(OutputPort& port) { ports_.push_back(&port); }
  void set_routes(Routes routes) { routes_ = std::move(routes); }
  // From now on some port's link may be down.
  void watch_links() { watches_links_ = true; }

  void on_event(std::uint64_t argument, base::Instant now) override;  // a packet arrives
  void prefetch_early(std::uint64_t argument) const override;         // the packet
  void prefetch_late(std::uint64_t argument) const override;          // its port

 private:
  OutputPort& choose(const Packet& packet, base::Instant now);
  std::uint32_t choice_by_flow(const Packet& packet, std::uint32_t ways) const;
  std::uint32_t next_in_turn(std::uint32_t ways);

  PacketPool* pool_;
  Spreading spreading_;
  bool watches_links_ = false;
  std::uint64_t salt_;
  std::uint32_t turn_ = 0;
  Routes routes_{0};
  std::vector<OutputPort*> ports_;
};

}  // namespace spillway::sim
