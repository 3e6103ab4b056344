// SPDX-License-Identifier: Apache-2.0
//
// Two ports of a switch that is not there yet, in a network namespace of their own: port0 and
// port1, each one end of a veth pair whose other ends are far0 and far1. The calling thread is in
// that namespace for as long as the rig lives, and threads that it starts meanwhile are too; all of
// it vanishes with the rig. Throws CommandError. Made and destroyed by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernel/measure/live_switch.h"
#include "kernel/measure/probe_frames.h"
#include "net/system_call.h"

namespace spillway::bench {

inline constexpr const char* kRigIn = "port0";
inline constexpr const char* kRigOut = "port1";
inline constexpr const char* kRigSink = "far1";
inline constexpr const char* kRigFeeder = "far0";

// A switch over both ports whose link is so fast that its queues stay empty. No hook: none.
kernel::LiveSwitchOptions rig_switch(std::optional<kernel::Hook> hook);

// A Spillway data packet of kRigPriority for the receiver behind port1.
inline constexpr std::uint8_t kRigPriority = 5;
kernel::Frame rig_data_frame(std::uint32_t bytes);

class ForwardingRig {
 public:
  ForwardingRig();
  ~ForwardingRig();
  ForwardingRig(const ForwardingRig&) = delete;
  ForwardingRig& operator=(const ForwardingRig&) = delete;

  // A Linux bridge over both ports.
  void add_bridge() const;
  void remove_bridge() const;
  // Switches that learn now know that the receiver of all probe frames is behind port1.
  void announce_receiver() const;

 private:
  void run_ip(const std::string& batch) const;

  std::string ip_;
  net::UniqueFd home_;
};

}  // namespace spillway::bench
