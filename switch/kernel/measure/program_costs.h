// SPDX-License-Identifier: Apache-2.0
//
// Costs of the switch's programs per frame, by the program's decision, and of sum packets. The
// kernel runs the programs on test frames and takes the time; nothing is attached, received or
// sent.
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

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "switch/dataplane/sum_slots.h"
#include "switch/kernel/measure/probe_frames.h"

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

// Averages over many runs of a program. No state.

// Mean of the middle half of the values.
inline double middle_mean(std::vector<double>& values) {
  std::ranges::sort(values);
  const auto quarter = static_cast<std::ptrdiff_t>(values.size() / 4);
  const auto first = values.begin() + quarter;
  const auto last = values.end() - quarter;
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// ------------------------------------------------------------------ sum packets
//
// Costs of a sum packet, by its slot's action, next to a data packet of the same size that is only
// forwarded. Three are measured: the switch's XDP program, which also decides about the queue; the
// tc program that forwards, after which another one decides; and the state machine alone in user
// space. Programs run repeatedly if neither frame nor slot changes. Otherwise they run one at a
// time, each on a slot prepared for it, minus the extra cost of a single run.

// `step` is called before each of sum_cost_steps(options) measurements. Ignores frame_bytes.
base::Result<std::vector<ProgramCost>> measure_sum_costs(
    const CostOptions& options, const std::function<void(std::string_view)>& step);
std::size_t sum_cost_steps(const CostOptions& options);

// The adding state machine (switch/dataplane/sum_slots.h) in user space, on one frame and its slot:
// find, decide, add, write. No queue, no network, no frame I/O. For benchmarks; no state, any
// thread.

// How words are added: vectorized by the compiler, or one by one.
enum class SumWordsBy : std::uint8_t { kVectors, kWords };

// Average nanoseconds for a frame that finds the slot in this state, over `runs` runs, each on
// copies of both.
double user_sum_ns(const Frame& frame, const spillway_sum_slot& slot, SumWordsBy words,
                   std::uint32_t runs);

}  // namespace spillway::kernel
