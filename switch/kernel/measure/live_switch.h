// SPDX-License-Identifier: Apache-2.0
//
// Measures one path through a switch. Frames made by the kernel enter at one port. The switch in
// the kernel, or any other forwarder, sends them to a second port, whose far end counts and drops
// them. All of it runs on the calling thread's CPU, as far as the kernel allows.
//
// Frames may also enter at the far end of the first port, and then arrive like those of a host. Sum
// packets then become the parts of SPILLWAY_FEED_RANKS ranks, chunk after chunk
// (dataplane/bpf/probe_maps.h).
//
// Interfaces are those of the calling thread's network namespace. The object's end detaches
// everything. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "switch/fabric/emulator.h"
#include "switch/kernel/kernel_switch.h"

namespace spillway::kernel {

struct LiveSwitchOptions {
  std::string in;
  std::string out;
  std::string sink;      // the far end of `out`, a veth
  std::string feeder{};  // the far end of `in`, a veth, where frames enter; empty: they enter at
                         // `in`
  // Unset: no switch; `in` receives frames as usual, and a bridge, for instance, forwards them.
  std::optional<Hook> hook;
  bool queues_others = false;
  spillway_port_config config = {};
  spillway_link link = {};
  spillway_sum_config sums = {};  // without slots it does not add
};

class LiveSwitch {
 public:
  static base::Result<std::unique_ptr<LiveSwitch>> attach(const LiveSwitchOptions& options);
  virtual ~LiveSwitch() = default;
  LiveSwitch(const LiveSwitch&) = delete;
  LiveSwitch& operator=(const LiveSwitch&) = delete;

  virtual base::Status send(base::ByteView frame, std::uint32_t count) = 0;
  // Frames that the sink has counted since it was attached.
  virtual std::uint64_t arrived() const = 0;
  // The kernel switch's port towards the sink.
  virtual fabric::PortSnapshot output_port() const = 0;
  // What the switch added up.
  virtual spillway_sum_counters sums() const = 0;

 protected:
  LiveSwitch() = default;
};

}  // namespace spillway::kernel
