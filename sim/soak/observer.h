// SPDX-License-Identifier: Apache-2.0
//
// Watches the Spillway stacks of a soak world and records what check_soak() (soak.h) needs. It does
// not trust the endpoints: it opens packets itself, compares planes with those of an independently
// encoded tensor, and decodes the expected tensor itself.
//
// Not for long runs: it remembers every message. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "packetize/packetizer.h"
#include "sim/network.h"
#include "sim/soak/attack.h"
#include "sim/soak/soak.h"
#include "sim/stacks/spillway_stack.h"

namespace spillway::sim {

class SoakObserver final : public StackObserver {
 public:
  // Both must outlive the run; `attacker` may be null.
  void follow(const Network& network, AttackStack* attacker) {
    network_ = &network;
    attacker_ = attacker;
  }
  SoakRecord& record() { return record_; }
  // Records an endpoint's final state, at the end of the run.
  void finish(const SpillwayStack& stack);

  void on_expect(const SpillwayStack& stack, const Flow& flow,
                 const transport::ReceiveOptions& options, bool accepted) override;
  void on_start(const SpillwayStack& stack, const Flow& flow, const transport::SendOptions& options,
                bool accepted) override;
  void on_transmit(const SpillwayStack& stack, const Packet& packet, base::ByteView payload,
                   base::Instant now) override;
  void before_arrival(const SpillwayStack& stack, const Packet& packet,
                      base::ByteView payload) override;
  void after_arrival(const SpillwayStack& stack, const Packet& packet, base::ByteView payload,
                     base::Instant now) override;
  void on_receive_end(const SpillwayStack& stack, const transport::ReceiveReport& report,
                      const TensorSink* sink) override;
  void on_send_end(const SpillwayStack& stack, const transport::SendReport& report) override;
  void on_peer_dead(const SpillwayStack& stack, HostId peer, base::Instant now) override;

 private:
  // A message within its job, with both ends of its flow: one source may send the same id to
  // several.
  using MessageName = std::tuple<std::uint8_t, HostId, HostId, std::uint64_t, std::uint64_t,
                                 std::uint16_t, wire::Phase>;
  // A job's stack on one host and one of its peers.
  using Pair = std::tuple<std::uint8_t, HostId, HostId>;
  using Stack = std::pair<std::uint8_t, HostId>;
  // A data packet by its sender, path and number.
  using DataName = std::tuple<std::uint16_t, std::uint8_t, std::uint32_t>;

  // A message with real bytes in flight, encoded independently.
  struct Original {
    packetize::PacketPlan plan;
    packetize::PacketBuffer packets;
    std::vector<std::vector<std::uint8_t>> planes;  // of each packet
    std::vector<std::size_t> trusted;               // longest trusted bytes of planes that arrived
  };
  struct Contact {
    base::Instant heard;      // by the host's clock
    base::Instant heard_at;   // by the network's clock
    base::Instant tried;      // the peer's latest attempt to send, by the network's clock
    std::uint64_t tries = 0;  // since it was last heard
    bool given_up = false;
  };

  // The state of a stack before the packet that is being delivered to it.
  struct Before {
    transport::EndpointCounters counters;
    std::uint64_t refused = 0;
    bool is_duplicate = false;  // the packet passes its check and has arrived before
    // Forgeries must change none of these.
    std::vector<std::uint64_t> numbers{};  // newest numbers of each peer
    base::Instant next_timeout{};
    std::size_t memory = 0;
  };

  static MessageName name_of(const SpillwayStack& stack, const wire::MessageId& id, HostId to);
  MessageRecord* find(const MessageName& name);
  void note_memory(const SpillwayStack& stack);
  void note_violation(const SpillwayStack& stack, const std::string& what);
  void note_data(const SpillwayStack& stack, const wire::DataStamp& stamp);
  void note_control(const SpillwayStack& stack, base::ByteView payload);
  void note_planes(const SpillwayStack& stack, base::ByteView payload);
  std::vector<std::uint64_t> numbers_of(const SpillwayStack& stack) const;
  void check_forgery(const SpillwayStack& stack, const AttackLabel& label);
  void check_duplicate(const SpillwayStack& stack);
  Original encode_apart(const SpillwayStack& stack, const Flow& flow);
  bool is_exact(const SpillwayStack& stack, const transport::ReceiveReport& report,
                const Original& original, std::span<const float> tensor);

  const Network* network_ = nullptr;
  AttackStack* attacker_ = nullptr;
  // For packets that are only compared with, never sent.
  wire::PacketAuth own_auth_ = packetize::seeded_auth({});
  SoakRecord record_;
  std::map<MessageName, std::size_t> messages_;
  std::map<MessageName, Original> originals_;
  std::map<Pair, Contact> contacts_;  // of a host and a peer that it hears
  std::map<Stack, std::size_t> memory_peaks_;
  std::map<Stack, std::set<std::pair<std::uint16_t, std::uint32_t>>> control_seen_;
  std::map<Stack, std::set<DataName>> data_seen_;
  Before before_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace spillway::sim
