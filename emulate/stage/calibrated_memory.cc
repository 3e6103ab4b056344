// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/calibrated_memory.h"

#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <fstream>
#include <string>

#include "emulate/stage/calibrated_calls.h"

namespace spillway::emulate {
namespace {

constexpr std::uint32_t kMemoryRepeats = 3;

// Resident memory of this process: now, and the peak since forget_peak().
struct Resident {
  std::uint64_t now = 0;
  std::uint64_t peak = 0;

  static Resident read() {
    Resident found;
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
      unsigned long long kib = 0;
      if (std::sscanf(line.c_str(), "VmRSS: %llu kB", &kib) == 1) {
        found.now = kib << 10;
      } else if (std::sscanf(line.c_str(), "VmHWM: %llu kB", &kib) == 1) {
        found.peak = kib << 10;
      }
    }
    return found;
  }
  static void forget_peak() {
    ::malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << "5";
  }
};

// Returns what communicators among these ranks hold here during the operations of `at_once`. A rank
// that is in none of them waits.
base::Result<double> held_bytes(runtime::Communicator& everybody, const MemoryOptions& options,
                                const std::vector<std::uint32_t>& among) {
  const base::Result<Divisions> divisions =
      divisions_of(options.at_once, everybody, among, /*shares_all=*/false);
  if (!divisions.ok()) {
    return divisions.status();
  }
  if (const base::Status status = meet(everybody, options.patience); !status.ok()) {
    return status;
  }
  Resident::forget_peak();
  const Resident before = Resident::read();
  const base::Result<ReplayGroups> groups =
      ReplayGroups::make(divisions->world, everybody, options.patience);
  if (!groups.ok()) {
    return groups.status();
  }
  std::deque<ShapedOperation> kept;
  Calls calls;
  std::uint64_t own = 0;
  for (const CollectiveShape& shape : options.at_once) {
    const auto group = divisions->own_group.find({shape.ranks, shape.stride});
    if (group == divisions->own_group.end()) {
      continue;
    }
    const ReplayGroups::Member member = groups->member(group->second);
    if (member.size > 1) {
      const ShapedOperation& shaped = kept.emplace_back(shape, member);
      calls.emplace_back(member.communicator, shaped.operation());
      own += shaped.bytes();
    }
  }
  for (std::uint32_t i = 0; i < kMemoryRepeats; ++i) {
    base::Status status = carry_out(calls, options.patience);
    if (status.ok()) {
      status = meet(everybody, options.patience);
    }
    if (!status.ok()) {
      return status;
    }
  }
  return static_cast<double>(Resident::read().peak) - static_cast<double>(before.now) -
         static_cast<double>(own);
}

}  // namespace

base::Result<MeasuredMemory> measure_memory(runtime::Communicator& everybody,
                                            const MemoryOptions& options) {
  const base::Result<double> of_real = held_bytes(everybody, options, options.real);
  if (!of_real.ok()) {
    return of_real.status();
  }
  const base::Result<double> of_all =
      held_bytes(everybody, options, ranks_below(everybody.world()));
  if (!of_all.ok()) {
    return of_all.status();
  }
  const bool is_real =
      std::binary_search(options.real.begin(), options.real.end(), everybody.rank());
  std::vector<double> more = {is_real ? std::max(0.0, *of_all - *of_real) : 0.0};
  if (const base::Status status = take_most(everybody, more, options.patience); !status.ok()) {
    return status;
  }
  return MeasuredMemory{options.real, static_cast<std::uint64_t>(more.front())};
}

}  // namespace spillway::emulate
