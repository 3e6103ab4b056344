// SPDX-License-Identifier: Apache-2.0
//
// Soak tests: random small worlds in which many faults happen at once, and what must still hold.
// A world, and everything that happens in it, is a function of its seed; the digest
// tells whether two runs were the same.
//
//   world      draws a world        observer   records what happens
//   attack     the attacker         soak       judges it
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "sim/host.h"
#include "sim/soak/attack.h"
#include "sim/soak/world.h"
#include "transport/endpoint.h"

namespace spillway::sim {

// The observations of a soak world, as plain data (SoakRecord, filled in by observer.h), and the
// invariants that must hold for every world. check_soak() returns a sentence per failure, with the
// subject and the numbers. Tests modify records to prove that each check can fail.
//
//   promises    messages that ended well are within their bounds, counted packet by packet, and
//               required packets have arrived; what arrived was sent
//   tensors     are bit for bit what the arrived planes decode to; nothing beside them was touched
//   ends        every message ends in time at both ends; peers are given up only if they are dead,
//               unreachable, or gave up first
//   bounds      memory stays below what limits imply; no endpoint takes more control packets than
//               arrived; no packet is left in the network at the end
//   attacks     a forgery that arrives is refused, counted once, and changes nothing; a repeated
//               packet is counted as such (observer.h checks both on arrival)

// A message, from its start to its end at both ends. Times are the network's.
struct MessageRecord {
  Flow flow;
  std::uint32_t packets = 0;
  std::optional<base::Duration> deadline;
  std::vector<std::uint8_t> importance;  // per packet, as requested
  std::vector<bool> transmitted;         // per packet, by its sender
  base::Instant started;
  bool expected = false;  // accepted by the receiver's endpoint
  bool sent = false;      // accepted by the sender's endpoint

  std::optional<transport::ReceiveReport> received{};
  base::Instant received_at{};
  std::optional<transport::SendReport> reported{};  // at the sender
  base::Instant reported_at{};

  // For messages with real bytes that ended with a tensor.
  bool is_exact = true;       // the tensor is what the trusted planes decode to, bit for bit
  bool guards_intact = true;  // nothing beside the tensor was written
};

// A host's job gave up a peer.
struct DeathRecord {
  std::uint32_t job = 0;
  HostId host = 0;
  HostId peer = 0;
  base::Instant at;              // network clock
  base::Duration silence;        // since the host last heard the peer, by the host's clock
  base::Duration unattempted;    // since the peer last tried to send
  base::Duration unanswered;     // since the peer last heard this host
  std::uint64_t lost_tries = 0;  // packets the peer has sent since it was last heard
  bool gave_up_first = false;    // the peer had given up this host before
};

struct EndpointRecord {
  std::uint32_t job = 0;
  HostId host = 0;
  transport::EndpointCounters counters;
  std::uint64_t control_arrived = 0;  // distinct control packets that arrived intact
  std::size_t memory_peak = 0;
  std::size_t memory_bound = 0;
  bool is_idle = true;  // no timer left at the end
};

struct SoakRecord {
  std::vector<MessageRecord> messages;
  std::vector<DeathRecord> deaths;
  std::vector<EndpointRecord> endpoints;
  std::vector<std::string> violations;  // violations found during the run
  std::uint64_t attacks_arrived = 0;
  std::uint64_t forgeries_refused = 0;
  std::array<std::uint64_t, kAttacks> refused{};  // the same, by kind
  std::uint64_t duplicates_counted = 0;           // packets that had arrived before, whoever sent
                                                  // them
  std::uint64_t packets = 0;                      // sent by hosts
  std::uint64_t packets_left = 0;                 // in the pool at the end
  bool background_running = false;                // some background flows had not ended
  std::uint64_t digest = 0;                       // of all events and their times
};

std::vector<std::string> check_soak(const SoakWorld& world, const SoakRecord& record);

struct SoakResult {
  SoakWorld world;
  SoakRecord record;
  std::vector<std::string> failures;  // sentences; empty if all is well
};

SoakResult run_soak_world(std::uint64_t seed);

}  // namespace spillway::sim
