// SPDX-License-Identifier: Apache-2.0
//
// The results of a simulation: when flows ended, how that compares with an ideal network, and what
// stacks and switches did. Plain data; tools/cli prints it.
//
// Percentiles cover the flows that ended well. The ideal time of a job is the time that its busiest
// host link needs for all of the job's bytes, without headers, delay or computing.
//
// A protocol that ends flows with trimmed or missing packets carries fewer bytes. Its slowdown is
// then too good, even below 1, and must be read beside whole_share(). Goodput counts whole packets
// only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "sim/host.h"
#include "sim/network.h"

namespace spillway::sim {

// A flow of a workload: its start, its end and its result.
struct FlowRecord {
  Flow flow;
  base::Instant start{};
  base::Instant end{};
  bool started = false;
  bool ended = false;
  FlowResult result{};
};

// Counters of a job's stacks, summed over hosts.
struct StackTotals {
  std::uint64_t data_sent = 0;  // packets or segments, including retransmissions
  std::uint64_t data_resent = 0;
  std::uint64_t timeouts = 0;  // TCP's
  std::uint64_t probes = 0;    // TCP's tail loss probes, Spillway's probes
  std::uint64_t marked = 0;    // arrived with congestion experienced
  std::uint64_t trimmed = 0;   // arrived cut
  double worst_error = 0.0;    // with real bytes: largest squared error of a tensor over its energy
};

// Figures of the flows of one priority.
struct PriorityResult {
  std::uint8_t priority = 0;
  base::DurationSummary completion;
};

struct JobResult {
  std::string name;
  std::string protocol;
  std::string pattern;
  std::uint64_t flows = 0;
  std::uint64_t ended = 0;   // well: kDone
  std::uint64_t failed = 0;  // ended otherwise; the remaining flows hit the limit
  base::DurationSummary completion;
  std::vector<PriorityResult> by_priority;  // the least urgent first
  base::Duration makespan;                  // from the first start to the last end, good or bad
  std::uint64_t bytes = 0;                  // of flows that ended well
  double whole_bytes = 0.0;                 // the part of them that arrived in whole packets
  double goodput_bps = 0.0;                 // whole_bytes over the makespan
  double slowdown = 0.0;      // makespan over the ideal time; 0 unless all flows ended well
  std::uint64_t packets = 0;  // of flows that ended well, as the four below
  std::uint64_t delivered = 0;
  std::uint64_t trimmed = 0;
  std::uint64_t important_expected = 0;
  std::uint64_t important_delivered = 0;
  StackTotals stacks;

  std::uint64_t missing() const { return packets - delivered; }
  double whole_share() const { return bytes == 0 ? 0.0 : whole_bytes / static_cast<double>(bytes); }
};

// Cumulative marks, trims and drops at one time, for plots.
struct CounterSample {
  base::Instant at;
  std::uint64_t marked = 0;
  std::uint64_t trimmed = 0;
  std::uint64_t dropped = 0;
};

struct ScenarioResult {
  std::vector<JobResult> jobs;
  base::DurationSummary completion;  // of all flows except background
  base::Instant end;                 // of simulated time
  bool finished = false;             // every flow except background ended before the limit
  NetworkTotals network;
  std::uint64_t events = 0;
  std::vector<FlowRecord> flows;
  std::vector<CounterSample> samples;
  std::vector<std::string> host_names;
};

// Fills in the figures that follow from a job's flows. `rate` is the rate of host links.
void add_flow_figures(std::span<const FlowRecord> flows, base::BitRate rate, JobResult& result);

// The bytes of the host that sends or receives most.
std::uint64_t busiest_bytes(std::span<const Flow> flows);

std::uint64_t dropped_packets(const spillway_port_counters& counters);

// A Chrome trace (chrome://tracing, ui.perfetto.dev), as JSON. Every flow is a bar in a lane of its
// source host; overlapping flows of a host take several lanes. The switches' marks, trims and drops
// are counters. Each job is a process. Times are simulated microseconds. Unfinished flows extend to
// the end of the run and are named so.
std::string chrome_trace_of(const ScenarioResult& result);

}  // namespace spillway::sim
