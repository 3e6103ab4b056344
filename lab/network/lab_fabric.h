// SPDX-License-Identifier: Apache-2.0
//
// The fabric that carries frames between a lab's hosts, samples of it over time, and whether it
// kept up with the clock.
//
//   kBpf   the switch in the kernel: hosts and switch share one kernel, and all traffic shares the
//          queues. Needs root and a scenario of one switch (switch/kernel/kernel_switch.h)
//   kUser  the emulated fabric in user space (switch/fabric/emulator.h): any scenario and isolation
//   kAuto  the first of these that is possible
//
// Create and use a LabFabric on a thread in the fabric's network namespace. It ends with the
// namespace. snapshot() may be called from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "base/status.h"
#include "base/units.h"
#include "lab/network/links.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/topology.h"
#include "switch/fabric/emulator.h"
#include "switch/kernel/kernel_switch.h"

namespace spillway::lab {

enum class Dataplane : std::uint8_t { kAuto, kBpf, kUser };
std::string_view dataplane_name(Dataplane dataplane);

class LabFabric {
 public:
  // `wanted` is kBpf or kUser. For kBpf the hosts' links must be up, with one interface each; the
  // switch then reports every packet if `traces`.
  static base::Result<LabFabric> make(Dataplane wanted, const scenario::Scenario& scenario,
                                      const HostPlan& plan,
                                      std::span<const fabric::PortAttachment> ports, bool traces);

  Dataplane dataplane() const { return kernel_ ? Dataplane::kBpf : Dataplane::kUser; }
  // Null if the fabric is in user space.
  const kernel::KernelSwitch* kernel_switch() const { return kernel_.get(); }
  // Becomes readable when the fabric ends by itself; -1: it never does.
  int stop_fd() const { return user_ ? user_->stop_fd() : -1; }
  // Stops the fabric and returns its status.
  base::Status finish();
  fabric::FabricSnapshot snapshot() const;

 private:
  LabFabric() = default;

  std::unique_ptr<fabric::FabricThread> user_;
  std::unique_ptr<kernel::KernelSwitch> kernel_;
};

// A lab's fabric over time, in the few numbers worth following, summed over all switch ports.
// Counts start with the fabric and include all traffic, background traffic as well.
//
// A FabricSampler takes samples while a lab's commands run, on a thread of its own. It begins with
// one every kSampleEvery and halves the rate after each kSamplesPerPace samples, so that a long run
// does not yield too many. `look` and `tell` are called on that thread, one after the other. The
// thread ends with the object.

// The fabric at one moment.
struct FabricSample {
  base::Duration at;                // since the commands were started
  std::uint64_t sent_bytes = 0;     // put on links by switches
  std::uint64_t queued_bytes = 0;   // waiting now
  std::uint64_t deepest_bytes = 0;  // of these, at the fullest port
  std::uint64_t trimmed = 0;        // packets
  std::uint64_t lost = 0;           // packets dropped by switches, or by faults anywhere
};

FabricSample sample_of(const fabric::FabricSnapshot& fabric, base::Duration at);

inline constexpr base::Duration kSampleEvery = base::milliseconds(100);
inline constexpr std::size_t kSamplesPerPace = 6000;

// The pause after sample number `taken`, counted from 1.
base::Duration sample_pause(std::size_t taken);

class FabricSampler {
 public:
  using Look = std::function<fabric::FabricSnapshot()>;
  using Tell = std::function<void(const FabricSample&)>;

  FabricSampler(Look look, Tell tell);
  ~FabricSampler();
  FabricSampler(const FabricSampler&) = delete;
  FabricSampler& operator=(const FabricSampler&) = delete;

 private:
  void work();
  // Returns false if no more samples are wanted.
  bool pause(base::Duration length);

  Look look_;
  Tell tell_;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread thread_;
};

// ------------------------------------------------------------------ pace
//
// Measurements show the network, and not this machine, only if the fabric kept up with the clock.
//
// The fabric in user space knows how late each frame left. It fell behind if it lost frames itself,
// or if the mean lateness exceeds a limit. The limit is kMaxMeanLate or, if longer, a tenth of the
// delay between the two hosts nearest to each other, or a quarter of the time that the fastest link
// needs for a full packet: a queue cannot tell packets apart that closely. The switch in the kernel
// does not know its lateness. With either fabric, a run does not count if the hypervisor took more
// than kMaxStolen of this virtual machine's CPU time.

inline constexpr base::Duration kMaxMeanLate = base::microseconds(50);
inline constexpr double kMaxStolen = 0.03;

struct Pace {
  double mean_late_us = 0.0;
  double p99_late_us = 0.0;
  double limit_us = 0.0;     // for the mean
  std::uint64_t missed = 0;  // frames that the emulation itself lost
  double stolen = 0.0;       // share of CPU time that the hypervisor took
  std::string remedy{};      // the starter's advice: what it did, or the option to give

  bool fabric_kept_up() const { return mean_late_us <= limit_us && missed == 0; }
  bool kept_up() const { return fabric_kept_up() && stolen <= kMaxStolen; }
};

// Ticks of all CPUs since boot.
struct ProcessorTimes {
  std::uint64_t all = 0;
  std::uint64_t stolen = 0;
};
ProcessorTimes parse_processor_times(std::string_view proc_stat);
ProcessorTimes read_processor_times();  // zeros if the kernel does not say
double stolen_share(const ProcessorTimes& before, const ProcessorTimes& after);

Pace pace_of(const scenario::Topology& topology, const fabric::FabricSnapshot& fabric,
             double stolen);

// Says what fell behind and by how much, and names the remedy. Empty if the run kept up.
std::string pace_sentence(const Pace& pace);

}  // namespace spillway::lab
