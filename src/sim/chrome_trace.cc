// SPDX-License-Identifier: Apache-2.0
#include "sim/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/chrome_events.h"

namespace spillway::sim {
namespace {

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

std::string chrome_trace_of(const ScenarioResult& result) {
  return TraceWriter(result).write();
}

}  // namespace spillway::sim
