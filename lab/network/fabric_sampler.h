// SPDX-License-Identifier: Apache-2.0
//
// A lab's fabric over time, in the few numbers worth following, summed over all switch ports.
// Counts start with the fabric and include all traffic, background traffic as well.
//
// A FabricSampler takes samples while a lab's commands run, on a thread of its own. It begins with
// one every kSampleEvery and halves the rate after each kSamplesPerPace samples, so that a long run
// does not yield too many. `look` and `tell` are called on that thread, one after the other. The
// thread ends with the object.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "base/units.h"
#include "switch/fabric/emulator.h"

namespace spillway::lab {

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

}  // namespace spillway::lab
