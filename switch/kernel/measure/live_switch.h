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
#include <vector>

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
  // The sums that the switch formed.
  virtual spillway_sum_counters sums() const = 0;

 protected:
  LiveSwitch() = default;
};

}  // namespace spillway::kernel

// Programs to measure the switch with (switch/dataplane/bpf/probe.bpf.c), loaded but not attached:
// two no-ops, one that feeds an interface, and a sink that counts what arrives. They end with the
// object. One thread.

struct probe_bpf;  // the skeleton that bpftool writes

namespace spillway::kernel {

enum class Probe : std::uint8_t { kPassXdp, kPassTc, kFeed, kSink };

class ProbePrograms {
 public:
  // `feeds`: the index of the interface that kFeed sends to.
  static base::Result<ProbePrograms> load(std::uint32_t feeds = 0);
  ~ProbePrograms();
  ProbePrograms(ProbePrograms&&) noexcept;
  ProbePrograms& operator=(ProbePrograms&&) noexcept;

  int fd(Probe probe) const;
  // Frames that the sink has seen, on all CPUs.
  std::uint64_t arrived() const;

 private:
  struct Close {
    void operator()(probe_bpf* skeleton) const;
  };
  explicit ProbePrograms(probe_bpf* skeleton);

  std::unique_ptr<probe_bpf, Close> skeleton_;
};

}  // namespace spillway::kernel

// Runs programs in the kernel on given frames (BPF_PROG_TEST_RUN), for tests and benchmarks.
//
// run_program(): a program reads and changes its maps, but nothing is received or sent.
//
// send_live_frames(): the kernel itself makes real frames, as if an interface had received them,
// many per call (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18). An XDP program runs on each, and its
// verdict is carried out. This is the fastest source of frames without a second machine. Buffers
// are reused without being rewritten, so a change to one frame shows in later ones.
//
// No state; any thread.

namespace spillway::kernel {

struct ProgramRun {
  std::uint32_t verdict = 0;  // XDP_PASS, TC_ACT_SHOT, ...
  std::vector<std::uint8_t> frame;
  std::uint32_t nanoseconds = 0;  // average per run
};

// Every run but the first finds the frame as the last one left it.
base::Result<ProgramRun> run_program(int program_fd, base::ByteView frame,
                                     std::uint32_t repeat = 1);

// `ifindex` is of the calling thread's network namespace. The interface must have an XDP program,
// but not necessarily this one. Returns when all runs are done.
base::Status send_live_frames(int program_fd, std::uint32_t ifindex, base::ByteView frame,
                              std::uint32_t count);

}  // namespace spillway::kernel
