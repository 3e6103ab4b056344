// SPDX-License-Identifier: Apache-2.0
//
// A message expected from a peer: what came of it, whether that is enough, what its sender has to
// be told. A plain state with small steps; the Receiver decides when to take them.
//
// It is over when everything came, or when the budget is met, every important packet is there and
// stragglers had their chance (linger), or at its deadline. An ended message stays in the table for
// a while without its ledger, so that a sender who missed the STOP gets another.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/message.h"
#include "transport/packet_ledger.h"

namespace spillway::transport {

struct Peer;

struct IncomingMessage {
  // What every packet needs, side by side.
  Peer* peer = nullptr;
  PayloadSink* sink = nullptr;
  wire::MessageId id;
  std::uint32_t slot = 0;
  std::uint32_t packets = 0;
  std::uint32_t packet_bytes = 0;
  std::uint32_t arrivals = 0;     // data packets, repeats included
  std::uint32_t transmitted = 0;  // the same, as the sender counts
  std::uint32_t unsolicited = 0;  // packets that came or will come without being granted
  std::uint32_t granted = 0;      // those included
  std::uint32_t important = 0;
  LossPolicy loss;
  std::uint8_t priority = 0;
  bool is_live = false;
  bool is_finished = false;
  bool has_begun = false;              // some packet of it came
  bool is_announced = false;           // a probe told how many packets are important
  bool all_sent = false;               // its sender has sent every packet, as far as it can tell
  bool is_waiting_for_credit = false;  // in the pacer's line
  bool has_said_missing = false;       // unasked, since the latest probe
  // To be said, when its turn in the control queue comes.
  bool is_queued = false;
  bool owes_stop = false;
  bool owes_bitmap = false;
  bool owes_credit = false;
  bool wants_answer = false;
  PacketLedger ledger;

  std::uint32_t duplicates = 0;
  std::uint32_t bitmap_next = 0;       // packet the next BITMAP starts from
  std::uint32_t probe_generation = 0;  // of the probe to answer
  std::uint32_t delivered = 0;         // when it ended
  Outcome outcome = Outcome::kEverything;
  base::Instant last_stop;
  base::Instant first_arrival;
  base::Instant linger_due = kNever;
  base::Instant missing_due = kNever;  // when to say unasked what is missing
  base::Instant deadline = kNever;
  base::Instant armed = kNever;  // the earliest entry in the timer queue

  bool is_enough() const {
    return ledger.missing() <= loss.allowed_missing(packets) && is_announced &&
           ledger.important_delivered() >= important;
  }

  // How many packets the sender is known to have sent.
  std::uint32_t seen() const { return std::max(arrivals, transmitted); }

  // How many packets to grant next: a quantum, or all that is still needed if that is less. None
  // while more than `window` less a quantum is granted and not seen, so that credit does not come
  // packet by packet from a receiver that is ahead of its sender.
  std::uint32_t grantable(std::uint32_t window, std::uint32_t quantum) const {
    const std::uint32_t needed = seen() + ledger.missing();
    if (is_finished || needed <= granted) {
      return 0;
    }
    const std::uint32_t packets = std::min(quantum, needed - granted);
    return granted + packets <= seen() + window ? packets : 0;
  }
};

}  // namespace spillway::transport
