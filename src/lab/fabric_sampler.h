// SPDX-License-Identifier: Apache-2.0
//
// Looks at a fabric again and again while a lab's commands run, on a thread of its own: at first
// every kSampleEvery, and half as often each time kSamplesPerPace have been taken, so that what a
// long run says stays bounded.
//
// `look` and `tell` are called on that thread, one after the other; the thread ends with the
// object.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>

#include "base/units.h"
#include "lab/fabric_sample.h"

namespace spillway::lab {

inline constexpr base::Duration kSampleEvery = base::milliseconds(100);
inline constexpr std::size_t kSamplesPerPace = 6000;

// The pause behind sample number `taken`, counted from 1.
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
  // False: no more samples are wanted.
  bool pause(base::Duration length);

  Look look_;
  Tell tell_;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace spillway::lab
