// SPDX-License-Identifier: Apache-2.0
//
// The Chrome trace of one run of a lab. Its file is opened before anything runs, and written when
// all has ended. One thread, besides the recorder's own.
//
// The recorder watches all hosts of a lab and, if it is in the kernel, their switch, and keeps what
// it sees of Spillway's packets. It looks every millisecond; the kernel's rings hold what comes in
// between.
//
// Limits: it keeps the first `packets` packets that leave, and counts the others. Start it before
// anything is sent and finish it when all senders have ended. finish() waits until nothing has
// arrived for a moment, so that queued packets can still arrive, but not for long.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/status.h"
#include "lab/network/host_plan.h"
#include "lab/trace/packet_sight.h"
#include "lab/trace/packet_tap.h"
#include "lab/trace/packet_trace.h"
#include "lab/trace/trace_summary.h"
#include "net/system_call.h"
#include "switch/kernel/switch_events.h"

namespace spillway::lab {

class PacketRecorder {
 public:
  // `namespaces` are the hosts'. `fabric` is null if no switch reports packets.
  static base::Result<std::unique_ptr<PacketRecorder>> start(
      const HostPlan& plan, std::span<const net::UniqueFd> namespaces,
      const kernel::KernelSwitch* fabric, std::size_t packets);
  ~PacketRecorder();
  PacketRecorder(const PacketRecorder&) = delete;
  PacketRecorder& operator=(const PacketRecorder&) = delete;

  // Call once.
  PacketLog finish();

 private:
  explicit PacketRecorder(std::size_t packets) : packets_(packets) {}

  base::Status open_taps(const HostPlan& plan, std::span<const net::UniqueFd> namespaces);
  base::Status open_events(const kernel::KernelSwitch& fabric);
  void work();
  bool look();
  void measure_clocks();
  void take(const TappedFrame& frame, std::uint32_t host);
  void keep(const PacketSight& sight);
  void stop();

  std::size_t packets_;
  std::vector<PacketTap> taps_;  // per host
  std::map<HardwareAddress, std::uint32_t> hosts_;
  std::unique_ptr<kernel::SwitchEvents> events_;
  base::Duration ahead_;  // time of day minus monotonic clock
  std::size_t left_ = 0;  // packets kept: departures, then arrivals
  std::size_t arrived_ = 0;
  PacketLog log_;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

class LabTrace {
 public:
  // Call on a thread in the fabric's network namespace. `namespaces` are the hosts'. `fabric` is
  // null if it runs in user space.
  static base::Result<LabTrace> start(const TraceOptions& options, const HostPlan& plan,
                                      std::span<const net::UniqueFd> namespaces,
                                      const kernel::KernelSwitch* fabric);

  // Call once, when the hosts' commands have ended.
  base::Result<TraceSummary> finish() { return file_.write(recorder_->finish()); }

 private:
  LabTrace(TraceFile file, std::unique_ptr<PacketRecorder> recorder)
      : file_(std::move(file)), recorder_(std::move(recorder)) {}

  TraceFile file_;
  std::unique_ptr<PacketRecorder> recorder_;
};

}  // namespace spillway::lab
