// SPDX-License-Identifier: Apache-2.0
//
// Two ports for a switch, in a network namespace of their own: port0 and port1, each one end of a
// veth pair whose other ends are far0 and far1. The switch itself is attached later. While the rig
// lives, the calling thread is in that namespace, and so are threads that it starts meanwhile. All
// of it vanishes with the rig. Throws CommandError. Made and destroyed by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "net/system_call.h"
#include "switch/kernel/measure/live_switch.h"
#include "switch/kernel/measure/probe_frames.h"

namespace spillway::bench {

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

}  // namespace spillway::bench
