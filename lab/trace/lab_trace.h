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

#include <linux/if_packet.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "lab/network/links.h"
#include "lab/trace/packet_paths.h"
#include "lab/trace/packet_trace.h"
#include "net/system_call.h"
#include "switch/dataplane/frame.h"
#include "switch/kernel/kernel_switch.h"

namespace spillway::lab {

// Watches one interface: the time and first bytes of every UDP frame that leaves or arrives there.
// It uses a packet socket whose ring the kernel shares with this process. Frames that leave are
// seen after the queueing discipline, as they enter the wire. Nothing is held up: a frame that does
// not fit into the ring is missed and counted.
//
// Limits: kTapBytes of each frame. Needs CAP_NET_RAW where the interface is. One thread.

inline constexpr std::uint32_t kTapBytes = SPILLWAY_LONGEST_HEADERS;

struct TappedFrame {
  base::MutableByteView bytes;  // at most kTapBytes
  std::uint32_t length = 0;     // of the whole frame
  base::Duration time_of_day;
  bool leaves = false;
};

class PacketTap {
 public:
  // The interface is in the calling thread's network namespace; later calls may come from any
  // other. The ring holds about `frames` frames.
  static base::Result<PacketTap> open(const std::string& interface, std::size_t frames);
  PacketTap(PacketTap&& other) noexcept;
  PacketTap& operator=(PacketTap&&) = delete;
  ~PacketTap();

  // Hands every waiting frame that this host sent or that is for it to `take`. Returns true if
  // there were frames.
  template <typename Take>
  bool read(Take take) {
    bool any = false;
    while (tpacket2_hdr* frame = next()) {
      if (concerns_the_host(*frame)) {
        take(tapped(*frame));
      }
      hand_back(*frame);
      any = true;
    }
    return any;
  }

  // Frames missed since the last call.
  std::uint64_t missed();

 private:
  PacketTap(net::UniqueFd fd, std::size_t frames) : fd_(std::move(fd)), frames_(frames) {}

  base::Status map_ring();
  tpacket2_hdr* next();
  static bool concerns_the_host(const tpacket2_hdr& frame);
  static TappedFrame tapped(tpacket2_hdr& frame);
  void hand_back(tpacket2_hdr& frame);

  net::UniqueFd fd_;
  std::size_t frames_;
  std::uint8_t* ring_ = nullptr;
  std::size_t next_ = 0;
};

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
  void keep(const PacketCapture& capture);
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
