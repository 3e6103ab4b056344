// SPDX-License-Identifier: Apache-2.0
//
// One path through a switch, to measure it: frames that the kernel makes enter at one port and are
// forwarded, by the switch in the kernel or by whatever else takes them there, to a second port,
// whose far end counts them and throws them away. All on the calling thread's processor, as far as
// the kernel does it.
//
// Frames may also enter at the far end of the first port, from where they come in as those of a
// host do: sum packets then become the parts of SPILLWAY_FEED_RANKS ranks, chunk after chunk
// (dataplane/bpf/probe_maps.h).
//
// The interfaces are of the calling thread's network namespace; what is attached to them goes
// with the object. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "fabric/emulator.h"
#include "kernel/kernel_switch.h"

namespace spillway::kernel {

struct LiveSwitchOptions {
  std::string in;
  std::string out;
  std::string sink;      // the far end of `out`, a veth
  std::string feeder{};  // the far end of `in`, a veth, where frames enter; empty: at `in`
  // Nothing: frames are received at `in` as ever, and a bridge, say, forwards them.
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
  // Frames at the sink, since it was attached.
  virtual std::uint64_t arrived() const = 0;
  // The port that leads to the sink, of a switch in the kernel.
  virtual fabric::PortSnapshot output_port() const = 0;
  // What it added up.
  virtual spillway_sum_counters sums() const = 0;

 protected:
  LiveSwitch() = default;
};

}  // namespace spillway::kernel
