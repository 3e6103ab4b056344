// SPDX-License-Identifier: Apache-2.0
//
// A stack for tests of the network: sends each flow's packets as fast as the card takes them,
// expects no reply, and records what arrives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "sim/host_stack.h"
#include "sim/packet.h"

namespace spillway::sim {

struct Arrival {
  HostId from = 0;
  std::uint32_t flow = 0;
  std::uint32_t number = 0;
  std::uint32_t bytes = 0;
  std::uint8_t ecn = 0;
  std::uint8_t dscp = 0;
  bool corrupt = false;
  base::Instant at;
  std::vector<std::uint8_t> payload;
};

struct BlastOptions {
  std::uint32_t frame_bytes = 1'500;
  PacketKind kind = PacketKind::kSpillwayData;
  std::uint32_t labels = 1;    // used by packets in turn
  PacketPool* pool = nullptr;  // source of real payloads, each byte 0xA5; null: size-only
  bool keep_arrivals = true;
};

class BlastStack final : public HostStack {
 public:
  explicit BlastStack(const BlastOptions& options) : options_(options) {}

  void expect_flow(const Flow& flow, base::Instant /*now*/) override {
    expected.push_back(flow.id);
  }
  void start_flow(const Flow& flow, base::Instant /*now*/) override { flows_.push_back({flow, 0}); }

  void on_packet(Packet& packet, base::Instant now) override {
    ++received;
    if (!options_.keep_arrivals) {
      return;
    }
    Arrival arrival{packet.from, packet.tcp.flow, packet.tcp.sequence, packet.bytes,
                    packet.ecn,  packet.dscp,     packet.corrupt,      now,
                    {}};
    if (options_.pool != nullptr) {
      const auto bytes = options_.pool->payload(packet);
      arrival.payload.assign(bytes.begin(), bytes.end());
    }
    arrivals.push_back(std::move(arrival));
  }

  void on_timeout(base::Instant now) override {
    timeouts.push_back(now);
    timer.reset();
  }
  base::Instant next_timeout() const override { return timer.value_or(transport::kNever); }

  bool poll_transmit(base::Instant /*now*/, Packet& packet) override {
    if (flows_.empty()) {
      return false;
    }
    Sending& sending = flows_.front();
    fill(sending, packet);
    ++sending.sent;
    if (std::uint64_t{sending.sent} * options_.frame_bytes >= sending.flow.bytes) {
      flows_.pop_front();
    }
    return true;
  }

  std::uint64_t received = 0;
  std::vector<Arrival> arrivals;
  std::vector<FlowId> expected;
  std::vector<base::Instant> timeouts;
  std::optional<base::Instant> timer;

 private:
  struct Sending {
    Flow flow;
    std::uint32_t sent = 0;
  };

  void fill(const Sending& sending, Packet& packet) const {
    packet.to = sending.flow.to;
    packet.kind = options_.kind;
    packet.bytes = options_.frame_bytes;
    packet.label = sending.flow.id * options_.labels + sending.sent % options_.labels;
    packet.dscp = spillway_dscp_of_priority(sending.flow.priority);
    packet.importance = sending.flow.importance;
    packet.ecn = spillway_ecn_of_importance(sending.flow.importance);
    packet.tcp.flow = sending.flow.id;
    packet.tcp.sequence = sending.sent;
    if (options_.pool != nullptr) {
      const auto room =
          options_.pool->attach_payload(packet, options_.frame_bytes - kFrameHeaderBytes);
      std::ranges::fill(room, std::uint8_t{0xA5});
    }
  }

  BlastOptions options_;
  std::deque<Sending> flows_;
};

}  // namespace spillway::sim
