// SPDX-License-Identifier: Apache-2.0
//
// State of one peer that outlives messages: paths and window towards it, packets that came from it,
// whether it is alive. PeerTable finds peers by rank, up to its limit. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/units.h"
#include "transport/congestion_control.h"
#include "transport/credit.h"
#include "transport/host_allowance.h"
#include "transport/path_set.h"
#include "transport/replay_window.h"
#include "transport/round_trip.h"

namespace spillway::transport {

struct IncomingMessage;
struct OutgoingMessage;

// A peer's place in the sending order (send_lines.h).
enum class Turn : std::uint8_t {
  kNone,     // there is nothing for it
  kReady,    // in the circle for its first message's priority
  kBlocked,  // it may not be sent to
};

struct Peer {
  Peer(std::uint16_t rank_, unsigned path_count, const PathConfig& path_config,
       const CongestionConfig& congestion, std::uint32_t standing_credit)
      : rank(rank_),
        balance(path_config.first_number, standing_credit),
        intake(path_config.first_number),
        paths(path_count, path_config),
        book(path_config.first_number, standing_credit),
        control(make_congestion_control(congestion)),
        control_sequence(path_config.first_number),
        replay(path_config.first_number) {
    window_bytes = control->window().count();
  }

  // A stream has a window of its own.
  bool has_room() const {
    return is_stream ? !is_full : paths.in_flight_bytes() < window_bytes + hosts.bytes();
  }
  bool may_send() const { return balance.has_credit() && has_room(); }
  bool is_suspect() const { return refused && last_heard <= *refused; }
  // Something is due from it.
  bool is_awaited() const {
    return !has_left && (outgoing > 0 || incoming > 0 || sums > 0 || is_watched);
  }

  // Fields that every packet needs, kept together.
  std::uint16_t rank;
  bool dead = false;
  bool timer_armed = false;
  bool has_left = false;                // said that it no longer takes part
  bool is_watched = false;              // whether or not it owes anything
  bool sent_early = false;              // sent packets of a message that was not expected yet
  bool has_spoken = false;              // sent something that passed its check
  bool is_stream = false;               // see Endpoint::use_stream()
  bool is_full = false;                 // the stream takes no data now
  std::uint32_t unreported = 0;         // data packets from it since the last report
  std::uint32_t sent_since_asking = 0;  // packets to it, since a report was asked for or came
  std::uint32_t loss_bound_ppm = 0;     // of the latest message to it
  std::int64_t window_bytes = 0;        // set by `control`
  Turn turn = Turn::kNone;
  std::uint8_t turn_priority = 0;
  std::uint8_t path = 0;             // of the current burst to it
  std::uint8_t burst_left = 0;       // packets, before the next path takes over
  bool in_credit_line = false;       // waits for its turn to be granted credit
  std::uint8_t credit_priority = 0;  // priority it waits with
  std::uint8_t priority = 0;         // of its latest message
  CreditBalance balance;             // credit for sending to it
  std::vector<OutgoingMessage*> line;
  base::Instant last_heard;
  // When its port was first said to refuse; anything heard from it later refutes that.
  std::optional<base::Instant> refused;
  base::Instant last_sent;            // latest data
  IncomingMessage* latest = nullptr;  // the message of the latest data packet; may be over
  PathIntake intake;                  // packets from it
  PathSet paths;                      // towards it
  HostAllowance hosts;                // on top of the window

  CreditBook book;                    // for what it sends
  std::uint32_t packet_bytes = 1500;  // UDP payload of what it sends, as of the latest message
  std::unique_ptr<CongestionControl> control;
  std::uint32_t outgoing = 0;  // messages under way to it; `incoming`: from it
  std::uint32_t incoming = 0;
  std::uint32_t sums = 0;             // under way with it
  RoundTrip round_trip;               // through the network, without time in hosts
  RoundTrip credit_wait;              // time without credit to send to it
  bool has_asked_for_credit = false;  // with a PROBE, since the last data packet
  RoundTrip end_wait;                 // from the last packet of a message to it to the STOP
  double lost_share = 0.0;            // of packets sent lately
  std::uint64_t retirements_seen = 0;
  std::uint64_t control_sequence;    // latest number sent to it
  std::uint32_t longest_packet = 0;  // UDP payload of data sent to it
  base::Instant carried;             // when data about that long was last known to have arrived
  // The latest datagram to it that this host's kernel refused to send.
  int unsent_error = 0;
  std::uint32_t unsent_bytes = 0;
  base::Instant unsent_at;
  ReplayWindow replay;
  // Operations before this one are too old to tell finished from never expected.
  std::uint64_t forgotten_before = 0;
  std::uint64_t point_to_point_floor = 0;  // see Endpoint::retire_before()
  std::uint64_t point_to_point_sent = 0;   // number of the latest such message to it
};

class PeerTable {
 public:
  explicit PeerTable(std::uint32_t limit) : limit_(limit) {}

  bool is_full() const { return peers_.size() >= limit_; }
  Peer* find(std::uint16_t rank) {
    // Packets of one peer tend to come together.
    if (latest_ == nullptr || latest_->rank != rank) {
      const std::uint32_t slot = rank < slot_of_.size() ? slot_of_[rank] : kNoSlot;
      if (slot == kNoSlot) {
        return nullptr;
      }
      latest_ = &peers_[slot];
    }
    return latest_;
  }
  void prefetch_latest() const {
    if (latest_ != nullptr) {
      const auto* bytes = reinterpret_cast<const char*>(latest_);
      __builtin_prefetch(bytes);
      __builtin_prefetch(bytes + 64);
      __builtin_prefetch(bytes + 128);
    }
  }
  // A new peer; the table must not be full nor hold the rank.
  Peer& add(std::uint16_t rank, unsigned paths, const PathConfig& path_config,
            const CongestionConfig& congestion, std::uint32_t standing_credit) {
    if (rank >= slot_of_.size()) {
      slot_of_.resize(rank + 1U, kNoSlot);
    }
    slot_of_[rank] = static_cast<std::uint32_t>(peers_.size());
    return peers_.emplace_back(rank, paths, path_config, congestion, standing_credit);
  }
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (Peer& peer : peers_) {
      visit(peer);
    }
  }
  std::size_t size() const { return peers_.size(); }
  std::size_t memory_bytes() const;

 private:
  static constexpr std::uint32_t kNoSlot = UINT32_MAX;

  Peer* latest_ = nullptr;  // found last
  std::uint32_t limit_;
  std::deque<Peer> peers_;              // references stay valid
  std::vector<std::uint32_t> slot_of_;  // by rank
};

inline std::size_t PeerTable::memory_bytes() const {
  std::size_t bytes = slot_of_.size() * sizeof(std::uint32_t);
  for (const Peer& peer : peers_) {
    bytes += sizeof(Peer) + peer.paths.memory_bytes() + peer.line.capacity() * sizeof(peer.line[0]);
  }
  return bytes;
}

}  // namespace spillway::transport
