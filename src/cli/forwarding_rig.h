// SPDX-License-Identifier: Apache-2.0
//
// Two ports of a switch that is not there yet, in a network namespace of their own: port0 and
// port1, each one end of a veth pair whose other ends are far0 and far1. The calling thread is in
// that namespace for as long as the rig lives, and threads that it starts meanwhile are too; all of
// it vanishes with the rig. Throws CommandError. Made and destroyed by one thread.
#pragma once

#include <string>

#include "net/unique_fd.h"

namespace spillway::cli {

inline constexpr const char* kRigIn = "port0";
inline constexpr const char* kRigOut = "port1";
inline constexpr const char* kRigSink = "far1";

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

}  // namespace spillway::cli
