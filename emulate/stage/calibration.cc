// SPDX-License-Identifier: Apache-2.0
#include "emulate/stage/calibration.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <thread>

#include "base/clock.h"
#include "emulate/stage/stage_durations.h"

namespace spillway::emulate {

namespace {

constexpr double kOutlier = 2.0;                         // times the median
constexpr std::uint64_t kMaxBackToBackBytes = 32 << 20;  // bytes; longer ones hardly overlap

// Runs the calls together `repeats` times. Returns each duration at the rank where it is longest.
base::Result<std::vector<double>> times_ns(comm::Communicator& all_ranks, const Calls& calls,
                                           std::uint32_t repeats,
                                           const CalibrationOptions& options) {
  const base::MonotonicClock clock;
  std::vector<double> times;
  for (std::uint32_t i = 0; i <= repeats; ++i) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(options.rest.count()));
    base::Status status = barrier(all_ranks, options.patience);
    const base::Instant began = clock.now();
    if (status.ok()) {
      status = run_calls(calls, options.patience);
    }
    if (!status.ok()) {
      return status;
    }
    if (i > 0) {  // the first run warms up memory and paths
      times.push_back(static_cast<double>((clock.now() - began).count()));
    }
  }
  const base::Status status = max_over_ranks(all_ranks, times, options.patience);
  return status.ok() ? base::Result<std::vector<double>>(std::move(times)) : status;
}

// The mean without outliers. A mean, because the durations of many calls are added up.
double mean_without_outliers(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  std::erase_if(times, [most = kOutlier * *middle](double time) { return time > most; });
  return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
}

base::Result<MeasuredRow> measure(comm::Communicator& all_ranks,
                                  const GroupCommunicators::Membership& member,
                                  const CollectiveShape& shape, const CalibrationOptions& options) {
  std::deque<ShapedOperation> shaped;
  Calls calls;
  for (std::uint32_t i = 0; i < (shape.bytes <= kMaxBackToBackBytes ? kBackToBack : 1); ++i) {
    calls.emplace_back(member.communicator, shaped.emplace_back(shape, member).operation());
  }
  const std::uint32_t bursts = (options.repeats + kBackToBack - 1) / kBackToBack;
  base::Result<std::vector<double>> alone =
      times_ns(all_ranks, {calls.front()}, options.repeats, options);
  base::Result<std::vector<double>> back_to_back =
      alone.ok() && calls.size() > 1 ? times_ns(all_ranks, calls, bursts, options) : alone;
  if (!back_to_back.ok()) {
    return base::Status(back_to_back.status().code(),
                        fmt::format("{} of {} bytes: {}", collective_kind_name(shape.kind),
                                    shape.bytes, back_to_back.status().message()));
  }
  const double one = mean_without_outliers(alone.value());
  const auto whole = [](double time_ns) {
    return base::nanoseconds(static_cast<std::int64_t>(time_ns));
  };
  MeasuredRow row{shape.kind, shape.ranks, shape.stride, shape.bytes, whole(one)};
  if (calls.size() > 1) {
    row.behind =
        whole(std::max(0.0, mean_without_outliers(back_to_back.value()) - one) / (kBackToBack - 1));
  }
  return row;
}

}  // namespace

base::Result<MeasuredTable> calibrate(comm::Communicator& all_ranks,
                                      const CalibrationOptions& options) {
  const base::Result<Divisions> divisions =
      divisions_of(options.shapes, all_ranks, ranks_below(all_ranks.world()), /*shares_all=*/true);
  if (!divisions.ok()) {
    return divisions.status();
  }
  const base::Result<GroupCommunicators> groups =
      GroupCommunicators::make(divisions->world, all_ranks, options.patience);
  if (!groups.ok()) {
    return groups.status();
  }
  MeasuredTable table;
  for (const CollectiveShape& shape : options.shapes) {
    const GroupCommunicators::Membership member =
        groups->membership(divisions->own_group.at({shape.ranks, shape.stride}));
    const base::Result<MeasuredRow> row = measure(all_ranks, member, shape, options);
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

namespace {

using collective::DataType;
using collective::Kind;

collective::Kind library_kind(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return Kind::kAllReduce;
    case CollectiveKind::kReduce:
      return Kind::kReduce;
    case CollectiveKind::kAllGather:
      return Kind::kAllGather;
    case CollectiveKind::kGather:
      return Kind::kGather;
    case CollectiveKind::kScatter:
      return Kind::kScatter;
    case CollectiveKind::kBroadcast:
      return Kind::kBroadcast;
    case CollectiveKind::kAllToAll:
      return Kind::kAllToAll;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kReduceScatterBlock:
      return Kind::kReduceScatter;
    case CollectiveKind::kBarrier:
      break;
  }
  return Kind::kBarrier;
}

}  // namespace

std::vector<std::uint32_t> ranks_below(std::uint32_t size) {
  std::vector<std::uint32_t> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0U);
  return ranks;
}

ShapedOperation::ShapedOperation(const CollectiveShape& shape,
                                 const GroupCommunicators::Membership& member) {
  operation_.kind = library_kind(shape.kind);
  const bool adds = operation_.kind == Kind::kAllReduce || operation_.kind == Kind::kReduce ||
                    operation_.kind == Kind::kReduceScatter;
  const bool is_whole = operation_.kind == Kind::kReduceScatter ||
                        operation_.kind == Kind::kAllToAll || operation_.kind == Kind::kScatter;
  const std::uint64_t part = is_whole ? shape.bytes / shape.ranks : shape.bytes;
  operation_.type = adds ? DataType::kFloat32 : DataType::kUint8;
  operation_.count = operation_.kind == Kind::kBarrier
                         ? 0
                         : std::max<std::uint64_t>(1, part / (adds ? sizeof(float) : 1));
  const collective::Group group{member.rank, member.size};
  input_.resize(collective::input_bytes(operation_, group));
  output_.resize(collective::output_bytes(operation_, group));
  operation_.input = input_.empty() ? nullptr : input_.data();
  operation_.output = output_.empty() ? nullptr : output_.data();
}

base::Status run_calls(const Calls& calls, base::Duration patience) {
  std::vector<std::shared_ptr<comm::Request>> requests;
  base::Status status;
  for (auto [communicator, operation] : calls) {
    operation.timeout = patience;
    base::Result<std::shared_ptr<comm::Request>> request = communicator->submit(operation);
    if (!request.ok()) {
      status = request.status();
      break;
    }
    requests.push_back(std::move(request).value());
  }
  for (const std::shared_ptr<comm::Request>& request : requests) {
    const base::Status ended = request->wait(std::nullopt).value_or(base::Status());
    status = status.ok() ? ended : status;
  }
  return status;
}

base::Status barrier(comm::Communicator& all_ranks, base::Duration patience) {
  collective::Operation barrier;
  barrier.kind = Kind::kBarrier;
  return run_calls({{&all_ranks, barrier}}, patience);
}

base::Status max_over_ranks(comm::Communicator& all_ranks, std::vector<double>& numbers,
                            base::Duration patience) {
  collective::Operation operation;
  operation.kind = Kind::kAllReduce;
  operation.type = DataType::kFloat64;
  operation.op = collective::ReduceOp::kMax;
  operation.count = numbers.size();
  operation.input = numbers.data();
  operation.output = numbers.data();
  return run_calls({{&all_ranks, operation}}, patience);
}

base::Result<Divisions> divisions_of(const std::vector<CollectiveShape>& shapes,
                                     const comm::Communicator& all_ranks,
                                     const std::vector<std::uint32_t>& among, bool shares_all) {
  Divisions made;
  World& world = made.world;
  const std::uint32_t size = all_ranks.world();
  const std::uint32_t rank = all_ranks.rank();
  world.ranks.resize(size);
  world.has_trace.resize(size, true);
  world.groups.push_back({"", ranks_below(size)});
  for (const CollectiveShape& shape : shapes) {
    const Divisions::Pattern pattern(shape.ranks, shape.stride);
    const std::uint64_t block = std::uint64_t{shape.ranks} * shape.stride;
    if (shape.ranks < 2 || block == 0 || size % block != 0) {
      return base::invalid_argument(
          fmt::format("{} ranks cannot be divided into groups of {}, {} apart", size, shape.ranks,
                      shape.stride));
    }
    if (made.own_group.contains(pattern)) {
      continue;
    }
    std::vector<std::uint32_t> first;
    for (std::uint32_t i = 0; i < shape.ranks; ++i) {
      first.push_back(i * shape.stride);
    }
    for (const std::vector<std::uint32_t>& whole : sibling_groups(first, size)) {
      std::vector<std::uint32_t> ranks;
      std::set_intersection(whole.begin(), whole.end(), among.begin(), among.end(),
                            std::back_inserter(ranks));
      const bool is_all_ranks = shares_all && ranks.size() == size;
      const auto index = is_all_ranks ? 0U : static_cast<std::uint32_t>(world.groups.size());
      if (!is_all_ranks) {
        world.groups.push_back({fmt::format("{}/{}", shape.ranks, shape.stride), ranks});
      }
      if (std::binary_search(ranks.begin(), ranks.end(), rank)) {
        made.own_group[pattern] = index;
        GraphNode node;
        node.kind = NodeKind::kCollective;
        node.group = index;
        node.has_collective = node.has_bytes = true;
        world.ranks[rank].nodes.push_back(node);
      }
    }
  }
  return made;
}

namespace {

constexpr std::uint32_t kMemoryRuns = 3;

// Resident memory of this process: now, and the peak since reset_peak().
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
  static void reset_peak() {
    ::malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << "5";
  }
};

// Returns what communicators among these ranks hold here during the operations of `at_once`. A rank
// that is in none of them waits.
base::Result<double> held_bytes(comm::Communicator& all_ranks, const MemoryOptions& options,
                                const std::vector<std::uint32_t>& among) {
  const base::Result<Divisions> divisions =
      divisions_of(options.at_once, all_ranks, among, /*shares_all=*/false);
  if (!divisions.ok()) {
    return divisions.status();
  }
  if (const base::Status status = barrier(all_ranks, options.patience); !status.ok()) {
    return status;
  }
  Resident::reset_peak();
  const Resident before = Resident::read();
  const base::Result<GroupCommunicators> groups =
      GroupCommunicators::make(divisions->world, all_ranks, options.patience);
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
    const GroupCommunicators::Membership member = groups->membership(group->second);
    if (member.size > 1) {
      const ShapedOperation& shaped = kept.emplace_back(shape, member);
      calls.emplace_back(member.communicator, shaped.operation());
      own += shaped.bytes();
    }
  }
  for (std::uint32_t i = 0; i < kMemoryRuns; ++i) {
    base::Status status = run_calls(calls, options.patience);
    if (status.ok()) {
      status = barrier(all_ranks, options.patience);
    }
    if (!status.ok()) {
      return status;
    }
  }
  return static_cast<double>(Resident::read().peak) - static_cast<double>(before.now) -
         static_cast<double>(own);
}

}  // namespace

base::Result<MeasuredMemory> measure_memory(comm::Communicator& all_ranks,
                                            const MemoryOptions& options) {
  const base::Result<double> of_real = held_bytes(all_ranks, options, options.real);
  if (!of_real.ok()) {
    return of_real.status();
  }
  const base::Result<double> of_all =
      held_bytes(all_ranks, options, ranks_below(all_ranks.world()));
  if (!of_all.ok()) {
    return of_all.status();
  }
  const bool is_real =
      std::binary_search(options.real.begin(), options.real.end(), all_ranks.rank());
  std::vector<double> more = {is_real ? std::max(0.0, *of_all - *of_real) : 0.0};
  if (const base::Status status = max_over_ranks(all_ranks, more, options.patience); !status.ok()) {
    return status;
  }
  return MeasuredMemory{options.real, static_cast<std::uint64_t>(more.front())};
}

}  // namespace spillway::emulate
