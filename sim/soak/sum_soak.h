// SPDX-License-Identifier: Apache-2.0
//
// Random small worlds for sums: switches that add with few slots, several jobs that compete for
// them, links that lose, duplicate, reorder, cut and damage, switches that restart, and a forger.
// All is drawn from one seed; the scenario is text that can be read again.
//
// No host dies and no link is cut for good: all sums end, so that the test can check who is in
// them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/units.h"
#include "sim/host.h"
#include "sim/scenario/scenario.h"
#include "sim/sum_table.h"
#include "transport/datagram_port.h"
#include "transport/message.h"
#include "wire/sum_datagram.h"

namespace spillway::sim {

// ------------------------------------------------------------------ worlds

// Ranks are on consecutive hosts. Every operation has the same pieces.
struct SumJobPlan {
  std::uint16_t number = 0;
  scenario::HostId first_host = 0;
  std::uint16_t ranks = 0;
  std::uint32_t operations = 0;
  std::vector<std::uint16_t> owners;  // of each piece
  std::uint32_t chunks = 0;           // of each piece
  std::uint32_t loss_bound_ppm = 0;
  std::uint8_t urgency = 0;
  bool is_wrong_about_need = false;  // tells switches random numbers of parts to wait for
  bool owners_contribute = true;
  base::Duration gap;     // between the starts of two operations
  base::Duration jitter;  // largest random delay of a rank's start
};

struct SumAttack {
  scenario::HostId host = 0;
  std::uint32_t packets = 0;
  base::Duration gap;
};

struct SumWorld {
  std::uint64_t seed = 0;
  std::string text;
  scenario::Scenario scenario;
  std::vector<SumJobPlan> jobs;
  std::optional<SumAttack> attack;
  base::Instant limit;  // everything must have ended by then
};

SumWorld draw_sum_world(std::uint64_t seed);

// Describes the whole world for people.
std::string describe(const SumWorld& world);

// The stacks of worlds of sums. SumStack is a rank's endpoint with its sums and sends real packets.
// SumForger sends parts, results and requests of sums; it knows everything about them except the
// key. One thread.

class SumStack final : public HostStack {
 public:
  struct Config {
    transport::EndpointConfig endpoint;
    transport::SessionConfig session;
    std::uint8_t stack = 0;   // index of the job's stack on every host
    HostId first_host = 0;    // host of rank 0
    std::uint16_t ranks = 0;  // of the job
  };
  using Listener = std::function<void(const transport::SumReport& report)>;

  // The pool must outlive the stack.
  SumStack(const Config& config, PacketPool& pool, Listener on_report);

  // The caller must wake the host afterwards.
  base::Status begin(const transport::SumOptions& options, base::Instant now);
  void retire(std::uint64_t operation) { port_.endpoint().retire(operation); }

  void expect_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_packet(Packet& packet, base::Instant now) override;
  void on_timeout(base::Instant now) override;
  base::Instant next_timeout() const override { return port_.endpoint().next_timeout(); }
  bool poll_transmit(base::Instant now, Packet& packet) override;

  const transport::DatagramPort& port() const { return port_; }

 private:
  void tell();

  Config config_;
  PacketPool& pool_;
  Listener on_report_;
  transport::DatagramPort port_;
  std::array<std::uint8_t, SPILLWAY_MAX_PACKET> buffer_;
};

class SumForger final : public HostStack {
 public:
  // World and pool must outlive the stack.
  SumForger(const SumWorld& world, PacketPool& pool);

  void expect_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_packet(Packet& /*packet*/, base::Instant /*now*/) override {}
  void on_timeout(base::Instant /*now*/) override {}
  base::Instant next_timeout() const override { return left_ == 0 ? transport::kNever : next_; }
  bool poll_transmit(base::Instant now, Packet& packet) override;

 private:
  const SumWorld& world_;
  PacketPool& pool_;
  std::uint32_t left_;
  base::Instant next_;
  base::RandomSequence random_;
};

// The signature of all packets of a job's operation; known to all in the world.
std::uint64_t sum_signature(std::uint16_t job, std::uint64_t operation);

// ------------------------------------------------------------------ soaks

// Soak tests of sums (SumWorld): every part counts once or is named as missing. The checks do
// not trust the endpoints: they make and add up the words themselves.
//
//   sums     at every rank, every chunk's words are the sum of exactly the ranks it names
//   names    all ranks name the same ranks for a chunk, including the owner if it contributes
//   bounds   no more parts are missing than the loss bound allows
//   ends     every sum ends in time at every rank; no packet is left in the network
//
// A world, and everything that happens in it, is a function of its seed.

// The outcome of one sum at one rank.
struct SumRecord {
  std::uint32_t job = 0;  // index in the world
  std::uint64_t operation = 0;
  std::uint16_t piece = 0;
  std::uint16_t rank = 0;
  bool is_over = false;
  std::vector<std::uint64_t> words;  // of all chunks
  std::vector<wire::RankSet> ranks;  // of each chunk
};

struct SumSoakRecord {
  std::vector<SumRecord> sums;
  spillway_sum_counters switches = {};  // of all switches
  std::uint64_t parts = 0;              // of all contributors
  std::uint64_t missing = 0;            // parts that are in no sum
  std::uint64_t refused = 0;            // sum packets whose tags did not match
  std::uint64_t packets = 0;            // sent by hosts
  std::uint64_t packets_left = 0;       // in the pool at the end
  std::uint64_t digest = 0;
};

struct SumSoakResult {
  SumWorld world;
  SumSoakRecord record;
  std::vector<std::string> failures;  // sentences; empty if all is well
};

// A rank's value of a word.
std::uint64_t sum_part(const SumJobPlan& job, std::uint64_t operation, std::uint16_t piece,
                       std::uint16_t rank, std::size_t word);

std::vector<std::string> check_sums(const SumWorld& world, const SumSoakRecord& record);

SumSoakResult run_sum_world(std::uint64_t seed);
SumSoakResult run_sum_world(const SumWorld& world);

}  // namespace spillway::sim
