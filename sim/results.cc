// SPDX-License-Identifier: Apache-2.0
#include "sim/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "switch/dataplane/port.h"

namespace spillway::sim {
namespace {

// Assumes that all packets of a flow carry about the same.
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

// ------------------------------------------------------------------ the trace

double microseconds_of(base::Instant instant) {
  return base::microseconds_of(instant.since_zero());
}

std::string_view end_name(const FlowRecord& record) {
  if (!record.ended) {
    return "unfinished";
  }
  switch (record.result.end) {
    case FlowEnd::kDone:
      return "done";
    case FlowEnd::kDeadline:
      return "deadline";
    case FlowEnd::kPeerDead:
      return "peer-dead";
    case FlowEnd::kCancelled:
      return "cancelled";
  }
  return "done";
}

class TraceWriter {
 public:
  explicit TraceWriter(const ScenarioResult& result) : result_(result) {}

  std::string write() {
    add_names();
    add_flows();
    for (const CounterSample& sample : result_.samples) {
      add_counters(sample);
    }
    return fmt::format("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n",
                       fmt::join(events_, ",\n"));
  }

 private:
  void add_names() {
    for (std::size_t job = 0; job < result_.jobs.size(); ++job) {
      events_.push_back(fmt::format(
          R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", job,
          base::json_quoted(result_.jobs[job].name + " " + result_.jobs[job].protocol)));
    }
    events_.push_back(
        fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"switches"}}}})",
                    result_.jobs.size()));
  }

  void add_flows() {
    std::vector<const FlowRecord*> started;
    for (const FlowRecord& record : result_.flows) {
      if (record.started) {
        started.push_back(&record);
      }
    }
    std::stable_sort(started.begin(), started.end(),
                     [](const FlowRecord* a, const FlowRecord* b) { return a->start < b->start; });
    for (const FlowRecord* record : started) {
      add_flow(*record);
    }
  }

  void add_flow(const FlowRecord& record) {
    const Flow& flow = record.flow;
    const base::Instant end = record.ended ? record.end : result_.end;
    const std::size_t lane = lanes_[{flow.job, flow.from}].place(record.start, end);
    const std::size_t thread = flow.from * kLanesPerHost + std::min(lane, kLanesPerHost - 1);
    name_thread(flow, thread);
    events_.push_back(fmt::format(
        R"({{"ph":"X","name":{},"cat":"flow","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"flow":{},"bytes":{},"priority":{},"end":"{}","packets":{},"delivered":{},"trimmed":{}}}}})",
        base::json_quoted("to " + result_.host_names[flow.to]), flow.job, thread,
        microseconds_of(record.start), base::microseconds_of(end - record.start), flow.id,
        flow.bytes, flow.priority, end_name(record), record.result.packets, record.result.delivered,
        record.result.trimmed));
  }

  void name_thread(const Flow& flow, std::size_t thread) {
    if (!named_[{flow.job, thread}]) {
      named_[{flow.job, thread}] = true;
      events_.push_back(
          fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})",
                      flow.job, thread, base::json_quoted(result_.host_names[flow.from])));
    }
  }

  void add_counters(const CounterSample& sample) {
    events_.push_back(fmt::format(
        R"({{"ph":"C","name":"packets","pid":{},"ts":{:.3f},"args":{{"marked":{},"trimmed":{},"dropped":{}}}}})",
        result_.jobs.size(), microseconds_of(sample.at), sample.marked, sample.trimmed,
        sample.dropped));
  }

  static constexpr std::size_t kLanesPerHost = 4096;

  const ScenarioResult& result_;
  std::vector<std::string> events_;
  std::map<std::pair<std::uint32_t, HostId>, base::TraceLanes> lanes_;
  std::map<std::pair<std::uint32_t, std::size_t>, bool> named_;
};

}  // namespace

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
  result.completion = base::summarise(std::move(completions));
  for (auto& [priority, durations] : by_priority) {
    result.by_priority.push_back({priority, base::summarise(std::move(durations))});
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

std::string chrome_trace_of(const ScenarioResult& result) {
  return TraceWriter(result).write();
}

}  // namespace spillway::sim
