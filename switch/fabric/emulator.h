// SPDX-License-Identifier: Apache-2.0
//
// A fabric that real hosts talk through: the simulator's network in real time, with real frames.
// Every host of the scenario's topology is replaced by a port to the outside (PortAttachment). A
// real host's frames enter the network through its port, and frames that the network delivers to
// that host leave there. Switches, queues, rates, delays, faults and tenants are those of sim and
// switch/dataplane, so emulation and simulation behave alike.
//
// Frames keep the time at which the kernel saw them. So a fabric that is scheduled late delays
// frames but does not queue, mark or trim them differently.
//
// run() belongs to one thread, which reads all ports and runs the network. The network handles
// frames in order of time, so its work cannot be divided. That thread, or separate writer threads
// (transmit_queue.h), send what leaves. stop() and snapshot() may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "net/system_call.h"
#include "sim/scenario/scenario.h"
#include "sim/sum_table.h"
#include "switch/dataplane/port.h"
#include "switch/fabric/port.h"

namespace spillway::fabric {

struct PortSnapshot {
  std::string name;  // "leaf0->host3"
  spillway_port_counters counters = {};
  std::uint64_t sent_packets = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t lost_to_faults = 0;
  std::uint32_t queued_bytes = 0;
  std::uint64_t untouched = 0;  // kernel switch: frames that are not Spillway's, left alone
  std::uint64_t same_port = 0;  // kernel switch: receiver behind the ingress port
};

struct FabricSnapshot {
  base::Instant taken;                   // by the monotonic clock
  std::vector<PortSnapshot> ports;       // of the switches, in the topology's order
  std::uint64_t frames_in = 0;           // from the outside
  std::uint64_t frames_out = 0;          // to the outside
  std::uint64_t missed_in = 0;           // lost before they were read: the fabric was too slow
  std::uint64_t missed_out = 0;          // refused by the kernel
  std::uint64_t unknown = 0;             // too short, or from an unknown relay peer
  std::uint64_t same_port = 0;           // dropped: receiver behind the ingress port
  std::uint64_t latest_us = 0;           // how late the latest frame left
  double mean_late_us = 0.0;             // lateness of frames, mean
  double p99_late_us = 0.0;              // lateness of frames, 99th percentile
  std::uint64_t dropped_in = 0;          // a host sent more than its link carries (ingress.h)
  std::uint64_t foreign = 0;             // relays: not Spillway packets
  std::uint64_t oversized = 0;           // interfaces: longer than the MTU; turn off TSO, GSO, GRO
  std::uint64_t lost_to_faults = 0;      // on any link
  std::uint64_t tenant_bytes = 0;        // of tenants, delivered
  std::uint64_t wanted_bytes = 0;        // what tenants would have delivered without competition
  std::vector<sim::AdderTotals> adders;  // switches that add
};

inline constexpr base::Duration kPublishEvery = base::milliseconds(10);

class Emulator {
 public:
  // One port per host of the topology, in its order, all interfaces or all relays. The scenario's
  // tenants run, its jobs do not: hosts send what they want. `writers`: number of writer threads.
  // Unset: as many as suit this machine. 0: none.
  static base::Result<std::unique_ptr<Emulator>> make(const scenario::Scenario& scenario,
                                                      std::span<const PortAttachment> ports,
                                                      std::optional<unsigned> writers = {});
  ~Emulator();
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;

  // Runs until stop() is called. Call once. The calling thread has raised priority meanwhile, if
  // that is permitted.
  base::Status run();
  void stop();
  // At most kPublishEvery old while running.
  FabricSnapshot snapshot() const;

 private:
  class Impl;
  explicit Emulator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Runs a fabric on a thread of its own. Call make() on a thread in the fabric's network namespace;
// the new thread inherits it. stop_fd() becomes readable when the fabric has ended.

class FabricThread {
 public:
  static base::Result<std::unique_ptr<FabricThread>> make(const scenario::Scenario& scenario,
                                                          std::span<const PortAttachment> ports);
  ~FabricThread();
  FabricThread(const FabricThread&) = delete;
  FabricThread& operator=(const FabricThread&) = delete;

  int stop_fd() const { return ended_.get(); }

  // Stops the fabric and returns its status.
  base::Status finish();
  FabricSnapshot snapshot() const { return emulator_->snapshot(); }

 private:
  FabricThread(std::unique_ptr<Emulator> emulator, net::UniqueFd ended);
  void work();

  std::unique_ptr<Emulator> emulator_;
  net::UniqueFd ended_;
  base::Status status_;  // the thread's; read after it is joined
  std::thread thread_;
};

}  // namespace spillway::fabric
