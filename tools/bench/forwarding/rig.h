// SPDX-License-Identifier: Apache-2.0
//
// The rig of forwarding measurements: two ports for a switch, and a processor of their own.
#pragma once

#include <sched.h>

#include <cstdint>
#include <optional>
#include <string>

#include "net/system_call.h"
#include "switch/fabric/transmit_queue.h"
#include "switch/kernel/measure/live_switch.h"
#include "switch/kernel/measure/probe_frames.h"

namespace spillway::bench {

// ------------------------------------------------------------------ two ports

// Two ports for a switch, in a network namespace of their own: port0 and port1, each one end of a
// veth pair whose other ends are far0 and far1. The switch itself is attached later. While the rig
// lives, the calling thread is in that namespace, and so are threads that it starts meanwhile. All
// of it vanishes with the rig. Throws CommandError. Made and destroyed by one thread.

inline constexpr const char* kRigIn = "port0";
inline constexpr const char* kRigOut = "port1";
inline constexpr const char* kRigSink = "far1";
inline constexpr const char* kRigFeeder = "far0";

// Options of a switch over both ports, with a link so fast that its queues stay empty. Empty
// `hook`: no hook.
kernel::LiveSwitchOptions rig_switch(std::optional<kernel::Hook> hook);

// A Spillway data packet of kRigPriority, addressed to the receiver at port1.
inline constexpr std::uint8_t kRigPriority = 5;
kernel::Frame rig_data_frame(std::uint32_t bytes);

class ForwardingRig {
 public:
  ForwardingRig();
  ~ForwardingRig();
  ForwardingRig(const ForwardingRig&) = delete;
  ForwardingRig& operator=(const ForwardingRig&) = delete;

  // Adds a Linux bridge over both ports.
  void add_bridge() const;
  void remove_bridge() const;
  // Teaches learning switches that the receiver of all probe frames is at port1.
  void announce_receiver() const;

 private:
  void run_ip(const std::string& batch) const;

  std::string ip_;
  net::UniqueFd home_;
};

// ------------------------------------------------------------------ one processor

// While it lives, the calling thread stays on one CPU and, if permitted, runs before ordinary
// threads, so that its measurements are its own. Throws CommandError if there is no such CPU. Made
// and destroyed by one thread.

// Pins the calling thread to a CPU; false if that is not possible.
bool stay_on_processor(unsigned cpu);

// Pauses between two measurements. The kernel throttles urgent threads that never sleep, and should
// not do so during a measurement.
void rest();

class PinnedThread {
 public:
  explicit PinnedThread(unsigned cpu);
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

 private:
  cpu_set_t before_;
  fabric::RealTimePriority real_time_;
};

}  // namespace spillway::bench
