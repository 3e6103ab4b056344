// SPDX-License-Identifier: Apache-2.0
//
// What the switch's programs cost per frame, by what happens to the frame. The kernel runs them on
// test frames (program_run.h) and takes the time; nothing is attached, received or sent.
//
// The kernel can run a program many times over on the same frame. That is exact, but each run finds
// the frame as the last one left it. So a program that changes the frame is run once at a time, on
// a fresh frame. Such single runs are slower: the clock is read around each, and the system call
// uses caches. A frame that the same program passes unchanged is measured both ways; the difference
// is subtracted.
//
// Callers must pin the calling thread to a CPU. The kernel's clock may tick slowly (8 ns on some
// machines), so single runs are averaged over the middle half of many.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spillway::kernel {

struct CostOptions {
  unsigned rounds = 5;                 // interleaved; results are their medians
  std::uint32_t single_runs = 20'000;  // at most kMaxSingleRuns
  std::uint32_t repeats = 1'000'000;
  std::uint32_t frame_bytes = 1514;
};
// Few enough that admitted frames do not fill the largest queue.
inline constexpr std::uint32_t kMaxSingleRuns = 100'000;

struct ProgramCost {
  std::string hook;  // "XDP", "tc"
  std::string fate;  // "pass", "trim to 206 bytes"
  bool is_ipv6 = false;
  double single_ns = 0.0;
  std::optional<double> repeated_ns{};  // null if the program changes the frame
  double ns = 0.0;                      // repeated, or single minus the extra cost of a single run
};

// `step` is called before each of cost_steps(options) measurements.
base::Result<std::vector<ProgramCost>> measure_program_costs(
    const CostOptions& options, const std::function<void(std::string_view)>& step);
std::size_t cost_steps(const CostOptions& options);

}  // namespace spillway::kernel
