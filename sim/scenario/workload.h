// SPDX-License-Identifier: Apache-2.0
//
// The flows of a job's hosts, and which of them wait for which, as data. A flow completes its
// `group`; a group is complete when all its flows have ended, successfully or not. A flow waits for
// the group `after_group` and for `earliest`, then for `delay` more (its host computes first).
// Groups are numbered within one workload.
//
// plan_workload() makes the workload of one job from a pattern and a few numbers:
//
//   permutation       every host sends to one other and receives from one other, at random
//   incast            `senders` hosts send to the first host at once
//   all-to-all        every host sends to every other
//   parameter-server  steps of push and pull (sim/training)
//   ring              all-reduce over a ring: 2 (N - 1) rounds of bytes / N to the next host
//   background        flows of random size between random hosts, as a Poisson process
//
// Everything random is drawn from `seed`. Invalid numbers and more than kMaxFlows flows are errors;
// background flows end at kMaxFlows instead.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "sim/scenario/topology.h"
#include "transport/message.h"

namespace spillway::scenario {

using FlowId = std::uint32_t;

struct Flow {
  FlowId id = 0;
  std::uint32_t job = 0;  // index of the job it belongs to
  HostId from = 0;
  HostId to = 0;
  std::uint64_t bytes = 0;
  std::uint8_t priority = 0;
  std::uint8_t importance = SPILLWAY_IMPORTANCE_MARKED;
  // How many of 1,000 packets must arrive, and how many are unimportant (importance 0).
  std::uint16_t required_permille = 0;
  std::uint16_t unimportant_permille = 0;
  transport::LossPolicy loss;
  wire::MessageId message;  // for Spillway stacks
};

inline constexpr std::uint32_t kNoGroup = UINT32_MAX;

struct PlannedFlow {
  Flow flow;  // the runner sets its id and job
  base::Instant earliest{};
  base::Duration delay{};
  std::uint32_t group = kNoGroup;
  std::uint32_t after_group = kNoGroup;
};

struct Workload {
  std::vector<PlannedFlow> flows;
  std::uint32_t groups = 0;
  // A run does not wait for background traffic.
  bool is_background = false;
};

enum class PatternKind : std::uint8_t {
  kPermutation,
  kIncast,
  kAllToAll,
  kParameterServer,
  kRing,
  kBackground
};

struct PatternOptions {
  PatternKind kind = PatternKind::kPermutation;
  std::uint32_t hosts = 0;          // number of the job's hosts
  std::uint32_t first_host = 0;     // index of the first of them
  std::uint64_t bytes = 1'000'000;  // per flow; per worker and step (parameter-server, ring)
  base::Instant start{};
  std::uint64_t seed = 1;
  Flow flow{};  // shared by all flows: priority, importance, loss policy

  std::uint32_t steps = 1;    // repetitions; ignored by background
  std::uint32_t senders = 0;  // incast; 0: all but the receiver
  // parameter-server
  std::uint32_t workers = 0;  // 0: all hosts that are not servers
  std::uint32_t servers = 1;
  std::uint32_t layers = 1;
  bool grouped = false;
  base::Duration compute{};
  // background
  double load = 0.1;  // of every host's link
  base::BitRate link_rate = base::gigabits_per_second(100);
  std::uint64_t bytes_min = 10'000;  // sizes are log-uniform
  std::uint64_t bytes_max = 10'000'000;
  base::Instant until{};  // the last arrival
  base::Duration on{};    // length of a burst of arrivals
  base::Duration off{};   // pause between bursts; zero: no pauses
};

std::string_view pattern_name(PatternKind kind);

base::Result<Workload> plan_workload(const PatternOptions& options);

// Most flows of a workload.
inline constexpr std::uint64_t kMaxFlows = 20'000'000;

// The parameter-server pattern as a workload. Each of `workers` has a tensor of `bytes`, cut into
// `layers` parts, and each part into one shard per server. If `grouped`, a whole part goes to the
// one server of the worker's group. When all pushes of a shard have arrived, its server sends it
// back to the same workers. A worker begins its next step when all its pulls have arrived. It first
// computes for `compute`, back layers before front layers. Front layers are more urgent (up to
// priority 7). Servers are spread evenly over the hosts.
//
// Message ids: `operation` is the step, `signature` the layer, `piece` the server of a push and the
// worker of a pull (pulls differ only by their receiver), `phase` reduce for pushes and gather for
// pulls.
//
// Groups of each step: one per shard of a layer (complete when its pushes have arrived; its pulls
// start then), then one per worker (complete when its pulls have arrived; its next step starts
// then).

struct ParameterServerHosts {
  std::vector<HostId> workers;
  std::vector<HostId> servers;
};

// Assigns hosts to servers and workers. The options must be valid for plan_parameter_server().
ParameterServerHosts place_parameter_servers(const PatternOptions& options);

base::Result<Workload> plan_parameter_server(const PatternOptions& options);

}  // namespace spillway::scenario
