// SPDX-License-Identifier: Apache-2.0
#include "sim/results.h"

#include <algorithm>
#include <map>

#include "dataplane/port.h"

namespace spillway::sim {
namespace {

// The value that `percent` of the sorted durations do not exceed.
base::Duration nearest_rank(const std::vector<base::Duration>& sorted, std::size_t percent) {
  const std::size_t rank = (sorted.size() * percent + 99) / 100;
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

// Packets of a flow carry about as much each.
double whole_bytes(const FlowRecord& record) {
  const FlowResult& result = record.result;
  const double whole = result.delivered - result.trimmed;
  return result.packets == 0 ? 0.0
                             : static_cast<double>(record.flow.bytes) * whole / result.packets;
}

void count_flow(const FlowRecord& record, JobResult& result) {
  if (record.result.end != FlowEnd::kDone) {
    ++result.failed;
    return;
  }
  ++result.ended;
  result.bytes += record.flow.bytes;
  result.whole_bytes += whole_bytes(record);
  result.packets += record.result.packets;
  result.delivered += record.result.delivered;
  result.trimmed += record.result.trimmed;
  result.important_expected += record.result.important_expected;
  result.important_delivered += record.result.important_delivered;
}

}  // namespace

DurationSummary summarise(std::vector<base::Duration> durations) {
  DurationSummary summary;
  summary.count = durations.size();
  if (durations.empty()) {
    return summary;
  }
  std::sort(durations.begin(), durations.end());
  double sum = 0.0;  // of up to millions of hours: an int64 of nanoseconds might not hold it
  for (const base::Duration duration : durations) {
    sum += static_cast<double>(duration.count());
  }
  summary.mean = base::Duration(static_cast<std::int64_t>(sum / durations.size() + 0.5));
  summary.p50 = nearest_rank(durations, 50);
  summary.p99 = nearest_rank(durations, 99);
  summary.max = durations.back();
  return summary;
}

void add_flow_figures(std::span<const FlowRecord> flows, base::BitRate rate, JobResult& result) {
  std::vector<base::Duration> completions;
  std::map<std::uint8_t, std::vector<base::Duration>> by_priority;
  std::vector<Flow> all;
  base::Instant first = transport::kNever;
  base::Instant last;
  result.flows = flows.size();
  for (const FlowRecord& record : flows) {
    all.push_back(record.flow);
    if (!record.ended) {
      continue;
    }
    count_flow(record, result);
    first = std::min(first, record.start);
    last = std::max(last, record.end);
    if (record.result.end == FlowEnd::kDone) {
      completions.push_back(record.end - record.start);
      by_priority[record.flow.priority].push_back(completions.back());
    }
  }
  result.completion = summarise(std::move(completions));
  for (auto& [priority, durations] : by_priority) {
    result.by_priority.push_back({priority, summarise(std::move(durations))});
  }
  if (last <= first) {
    return;
  }
  result.makespan = last - first;
  const auto makespan_ns = static_cast<double>(result.makespan.count());
  result.goodput_bps = result.whole_bytes * 8e9 / makespan_ns;
  if (result.ended == result.flows) {
    const double ideal_ns = static_cast<double>(busiest_bytes(all)) * 8e9 / rate.count();
    result.slowdown = makespan_ns / ideal_ns;
  }
}

std::uint64_t busiest_bytes(std::span<const Flow> flows) {
  std::map<HostId, std::uint64_t> sent;
  std::map<HostId, std::uint64_t> received;
  std::uint64_t most = 0;
  for (const Flow& flow : flows) {
    most = std::max(most, sent[flow.from] += flow.bytes);
    most = std::max(most, received[flow.to] += flow.bytes);
  }
  return most;
}

std::uint64_t dropped_packets(const spillway_port_counters& counters) {
  return counters.packets[SPILLWAY_REASON_QUEUE_FULL] + counters.packets[SPILLWAY_REASON_EARLY] +
         counters.packets[SPILLWAY_REASON_RED] + counters.packets[SPILLWAY_REASON_CONTROL_FULL];
}

}  // namespace spillway::sim
