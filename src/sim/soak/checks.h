// SPDX-License-Identifier: Apache-2.0
//
// What was seen in a soak world, as plain data (SoakRecord, which watch.h fills in), and what must
// hold of it, whatever was drawn: check_soak() adds a sentence per failure, with what it is about
// and the numbers. Tests doctor records to prove that a judge can say no.
//
//   promises    messages that ended well are within their bounds, counted packet by packet, and
//               what must arrive has arrived; what arrived was sent
//   tensors     are bit for bit what the planes that came make; nothing beside them was touched
//   ends        every message ends in time at both ends; only the dead, the unreachable and those
//               who gave up themselves are given up
//   bounds      memory stays below what limits imply; no endpoint takes more control packets than
//               there were; nothing is left on its way in the end
//   attacks     a forgery that arrives is refused, counted once, and changes nothing; a packet that
//               comes once more is counted as that (watch.h sees both on the spot)
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "sim/host_stack.h"
#include "sim/soak/forgery.h"
#include "sim/soak/world.h"
#include "transport/endpoint.h"

namespace spillway::sim {

// A message, from what its two owners asked for to how it ended at both. Times are the network's.
struct MessageRecord {
  Flow flow;
  std::uint32_t packets = 0;
  std::optional<base::Duration> deadline;
  std::vector<std::uint8_t> importance;  // per packet, as the sender's owner asked for
  std::vector<bool> transmitted;         // per packet, by its sender
  base::Instant started;
  bool expected = false;  // its receiver's endpoint took it
  bool sent = false;      // its sender's did

  std::optional<transport::ReceiveReport> received{};
  base::Instant received_at{};
  std::optional<transport::SendReport> reported{};  // at the sender
  base::Instant reported_at{};

  // With real bytes, of messages that ended with a tensor.
  bool is_exact = true;       // the tensor is what the trusted planes decode to, bit for bit
  bool guards_intact = true;  // nothing beside it was touched
};

// A host's job gave up a peer.
struct DeathRecord {
  std::uint32_t job = 0;
  HostId host = 0;
  HostId peer = 0;
  base::Instant at;              // by the network's clock
  base::Duration silence;        // since the peer was last heard, by the host's own clock
  base::Duration unattempted;    // since the peer last tried to send anything
  base::Duration unanswered;     // since the peer last heard of this host
  std::uint64_t lost_tries = 0;  // packets the peer has sent since it was last heard
  bool gave_up_first = false;    // the peer had named this host dead before
};

struct EndpointRecord {
  std::uint32_t job = 0;
  HostId host = 0;
  transport::EndpointCounters counters;
  std::uint64_t control_arrived = 0;  // different control packets for it that came intact
  std::size_t memory_peak = 0;
  std::size_t memory_bound = 0;
  bool is_idle = true;  // no timer left, in the end
};

struct SoakRecord {
  std::vector<MessageRecord> messages;
  std::vector<DeathRecord> deaths;
  std::vector<EndpointRecord> endpoints;
  std::vector<std::string> wrongs;  // what was seen to be wrong the moment it happened
  std::uint64_t attacks_arrived = 0;
  std::uint64_t forgeries_refused = 0;
  std::array<std::uint64_t, kAttacks> refused{};  // the same by kind
  std::uint64_t repeats_counted = 0;              // packets that came before, whoever sent them
  std::uint64_t packets = 0;                      // that hosts sent
  std::uint64_t packets_left = 0;                 // in the pool, in the end
  bool others_go_on = false;                      // background flows that had not ended
  std::uint64_t digest = 0;                       // of all that happened, and when
};

std::vector<std::string> check_soak(const SoakWorld& world, const SoakRecord& record);

}  // namespace spillway::sim
