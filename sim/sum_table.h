// SPDX-License-Identifier: Apache-2.0
//
// The memory of a switch that adds: slots (dataplane/sum_slots.h), the jobs that use them, and the
// places of their ranks. The dataplane decides what happens to a packet; this class carries it out
// on packets of the pool.
//
// The table learns jobs from their packets, at most SPILLWAY_SUM_JOBS at a time. The pool must
// outlive the table. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/units.h"
#include "sim/packet.h"
#include "sim/scenario/topology.h"
#include "sim/sum_envelope.h"
#include "sim/sum_totals.h"
#include "switch/dataplane/sum_copies.h"

namespace spillway::sim {

class SumTable {
 public:
  SumTable(PacketPool& pool, const scenario::Adder& adder);

  // Takes over a packet that arrived at `port` and returns the packets that leave instead, with
  // their destinations: none, the packet itself, changed or not, or copies. The result is valid
  // until the next call. Port numbers only distinguish directions.
  std::span<const PacketIndex> take(PacketIndex index, std::uint32_t port, base::Instant now);

  // Clears all state as a restart does; counters continue.
  void forget();

  AdderTotals totals() const;

 private:
  static constexpr std::size_t kMembers = SPILLWAY_SUM_JOBS * SPILLWAY_SUM_RANKS;

  struct Visit;

  spillway_sum_job* find_job(std::uint16_t job, base::Instant now, std::uint32_t port);
  void open_job(std::uint32_t row, std::uint32_t name);
  void fix_job(const scenario::JobSlots& limit);
  bool reach_slot(Visit& visit);
  void decide(Visit& visit);
  void carry_out(Visit& visit);
  void spread(Visit& visit);
  void send_copy(const Visit& visit, const spillway_sum_copy& copy);
  void learn(const Visit& visit);
  void count(const Visit& visit);
  SumPlace& home(const spillway_sum_job& job, std::uint32_t rank) {
    return homes_[job.row * SPILLWAY_SUM_RANKS + rank % SPILLWAY_SUM_RANKS];
  }

  PacketPool* pool_;
  spillway_sum_config config_;
  std::vector<scenario::JobSlots> limits_;
  std::vector<spillway_sum_slot> slots_;
  std::vector<SumPlace> places_;  // of the slots' claiming packets
  spillway_sum_directory directory_ = {};
  std::vector<spillway_sum_job> jobs_;
  std::vector<SumPlace> homes_;  // of the jobs' members
  std::uint32_t held_ = 0;       // slots waiting for parts
  std::map<std::uint16_t, spillway_sum_counters> by_job_;
  std::array<spillway_sum_counters*, SPILLWAY_SUM_JOBS> by_row_ = {};
  spillway_sum_counters all_ = {};
  std::vector<PacketIndex> leaving_;
};

}  // namespace spillway::sim
