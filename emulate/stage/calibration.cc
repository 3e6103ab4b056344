// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <thread>

#include "base/clock.h"
#include "emulate/stage/calibrated_calls.h"

namespace spillway::emulate {
namespace {

constexpr double kHiccup = 2.0;                  // times the median
constexpr std::uint64_t kMostInARow = 32 << 20;  // bytes; longer ones hardly overlap

// Runs the calls together `repeats` times. Returns each duration at the rank where it is longest.
base::Result<std::vector<double>> times_ns(runtime::Communicator& everybody, const Calls& calls,
                                           std::uint32_t repeats,
                                           const CalibrationOptions& options) {
  const base::MonotonicClock clock;
  std::vector<double> times;
  for (std::uint32_t i = 0; i <= repeats; ++i) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(options.rest.count()));
    base::Status status = meet(everybody, options.patience);
    const base::Instant began = clock.now();
    if (status.ok()) {
      status = carry_out(calls, options.patience);
    }
    if (!status.ok()) {
      return status;
    }
    if (i > 0) {  // the first run warms up memory and paths
      times.push_back(static_cast<double>((clock.now() - began).count()));
    }
  }
  const base::Status status = take_most(everybody, times, options.patience);
  return status.ok() ? base::Result<std::vector<double>>(std::move(times)) : status;
}

// The mean without outliers. A mean, because the durations of many calls are added up.
double usual(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  std::erase_if(times, [most = kHiccup * *middle](double time) { return time > most; });
  return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
}

base::Result<MeasuredRow> measure(runtime::Communicator& everybody,
                                  const ReplayGroups::Member& member, const CollectiveShape& shape,
                                  const CalibrationOptions& options) {
  std::deque<ShapedOperation> shaped;
  Calls calls;
  for (std::uint32_t i = 0; i < (shape.bytes <= kMostInARow ? kInARow : 1); ++i) {
    calls.emplace_back(member.communicator, shaped.emplace_back(shape, member).operation());
  }
  const std::uint32_t bursts = (options.repeats + kInARow - 1) / kInARow;
  base::Result<std::vector<double>> alone =
      times_ns(everybody, {calls.front()}, options.repeats, options);
  base::Result<std::vector<double>> in_a_row =
      alone.ok() && calls.size() > 1 ? times_ns(everybody, calls, bursts, options) : alone;
  if (!in_a_row.ok()) {
    return base::Status(in_a_row.status().code(),
                        fmt::format("{} of {} bytes: {}", collective_kind_name(shape.kind),
                                    shape.bytes, in_a_row.status().message()));
  }
  const double one = usual(alone.value());
  const auto whole = [](double time_ns) {
    return base::nanoseconds(static_cast<std::int64_t>(time_ns));
  };
  MeasuredRow row{shape.kind, shape.ranks, shape.stride, shape.bytes, whole(one)};
  if (calls.size() > 1) {
    row.behind = whole(std::max(0.0, usual(in_a_row.value()) - one) / (kInARow - 1));
  }
  return row;
}

}  // namespace

base::Result<MeasuredTable> calibrate(runtime::Communicator& everybody,
                                      const CalibrationOptions& options) {
  const base::Result<Divisions> divisions =
      divisions_of(options.shapes, everybody, ranks_below(everybody.world()), /*shares_all=*/true);
  if (!divisions.ok()) {
    return divisions.status();
  }
  const base::Result<ReplayGroups> groups =
      ReplayGroups::make(divisions->world, everybody, options.patience);
  if (!groups.ok()) {
    return groups.status();
  }
  MeasuredTable table;
  for (const CollectiveShape& shape : options.shapes) {
    const ReplayGroups::Member member =
        groups->member(divisions->own_group.at({shape.ranks, shape.stride}));
    const base::Result<MeasuredRow> row = measure(everybody, member, shape, options);
    if (!row.ok()) {
      return row.status();
    }
    table.rows.push_back(*row);
    if (options.on_row) {
      options.on_row(*row);
    }
  }
  return table;
}

}  // namespace spillway::emulate
