// SPDX-License-Identifier: Apache-2.0
//
// What the switch's programs cost per frame, by what becomes of the frame. The kernel runs them on
// frames of ours (program_run.h) and takes the time; nothing is attached, received or sent.
//
// The kernel runs a program many times over on the same frame, which is exact, but a run finds the
// frame as the one before left it. Where a verdict changes the frame it is therefore run once at a
// time on a fresh one. Such a single run is slower, by the clock that is read around it and by
// caches that the system call has used meanwhile; by how much is seen at a frame that the same
// program lets pass, which is measured both ways, and taken off.
//
// Moves to no processor by itself: pin the calling thread. The kernel's clock may tick slowly (8 ns
// on some machines): single runs are averaged over the middle half of many.
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
  unsigned rounds = 5;                 // medians of so many, interleaved
  std::uint32_t single_runs = 20'000;  // at most kMaxSingleRuns
  std::uint32_t repeats = 1'000'000;
  std::uint32_t frame_bytes = 1514;
};
// So that what is let in does not fill the largest queue.
inline constexpr std::uint32_t kMaxSingleRuns = 100'000;

struct ProgramCost {
  std::string hook;  // "XDP", "tc"
  std::string fate;  // "pass", "trim to 206 bytes"
  bool is_ipv6 = false;
  double single_ns = 0.0;
  std::optional<double> repeated_ns{};  // nothing where the frame does not stay as it is
  double ns = 0.0;                      // repeated, or single less what a single run costs on top
};

// `step` is told before each of cost_steps(options) measurements.
base::Result<std::vector<ProgramCost>> measure_program_costs(
    const CostOptions& options, const std::function<void(std::string_view)>& step);
std::size_t cost_steps(const CostOptions& options);

}  // namespace spillway::kernel
