// SPDX-License-Identifier: Apache-2.0
//
// A fabric that real hosts talk through: the simulator's network, run at the pace of the clock on
// the wall, with real frames. Every host of the scenario's topology is replaced by a port to the
// outside (PortAttachment): what arrives there enters the network as if that host had sent it, and
// what the network delivers to that host leaves there. Switches, queues, rates, delays, faults and
// tenants are those of src/sim and src/dataplane, so what is emulated is what is simulated.
//
// Frames keep the time at which the kernel saw them, so a fabric that is scheduled late delays
// frames but does not queue, mark or trim them differently.
//
// run() belongs to one thread, which reads all ports and runs the network: what the network does is
// in the order of the frames' times and cannot be shared out. What leaves is written by it or by
// threads of their own (outlet.h). stop() and snapshot() may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "dataplane/port.h"
#include "fabric/port_attachments.h"
#include "scenario/scenario.h"
#include "sim/sum_totals.h"

namespace spillway::fabric {

struct PortSnapshot {
  std::string name;  // "leaf0->host3"
  spillway_port_counters counters = {};
  std::uint64_t sent_packets = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t lost_to_faults = 0;
  std::uint32_t queued_bytes = 0;
  std::uint64_t untouched = 0;  // in the kernel: frames that are not Spillway's and were left alone
  std::uint64_t same_port = 0;  // in the kernel: came in here and were for somebody behind it
};

struct FabricSnapshot {
  base::Instant taken;                   // by the monotonic clock
  std::vector<PortSnapshot> ports;       // of the switches, in the topology's order
  std::uint64_t frames_in = 0;           // from the outside
  std::uint64_t frames_out = 0;          // to the outside
  std::uint64_t missed_in = 0;           // lost before they were read: the fabric was too slow
  std::uint64_t missed_out = 0;          // refused by the kernel
  std::uint64_t unknown = 0;             // neither for a known host nor for all
  std::uint64_t same_port = 0;           // for somebody behind the port they came in at: dropped
  std::uint64_t latest_us = 0;           // how late the latest frame left, at worst
  double mean_late_us = 0.0;             // and on average
  double p99_late_us = 0.0;              // and 99 of 100 at most
  std::uint64_t dropped_in = 0;          // a host sent more than its link carries (port_stack.h)
  std::uint64_t foreign = 0;             // relays: not Spillway packets
  std::uint64_t oversized = 0;           // interfaces: longer than the MTU; turn off TSO, GSO, GRO
  std::uint64_t lost_to_faults = 0;      // on any link
  std::uint64_t tenant_bytes = 0;        // of tenants, at their destinations
  std::uint64_t wanted_bytes = 0;        // what tenants alone would have got through
  std::vector<sim::AdderTotals> adders;  // switches that add
};

inline constexpr base::Duration kPublishEvery = base::milliseconds(10);

class Emulator {
 public:
  // One port per host of the topology, in its order, all interfaces or all relays. The scenario's
  // jobs are not run: what hosts send is theirs to decide. Its tenants are. `writers`: as many as
  // suit this machine, unless it says how many (0: none).
  static base::Result<std::unique_ptr<Emulator>> make(const scenario::Scenario& scenario,
                                                      std::span<const PortAttachment> ports,
                                                      std::optional<unsigned> writers = {});
  ~Emulator();
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;

  // Until stop() is called; once. The calling thread is urgent meanwhile, where that is permitted.
  base::Status run();
  void stop();
  // At most kPublishEvery old while running.
  FabricSnapshot snapshot() const;

 private:
  class Impl;
  explicit Emulator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::fabric
