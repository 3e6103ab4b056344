// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/workload.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

namespace spillway::scenario {
namespace {

Workload planned(const PatternOptions& options) {
  base::Result<Workload> workload = plan_workload(options);
  EXPECT_TRUE(workload.ok()) << workload.status().message();
  return workload.ok() ? std::move(workload).value() : Workload();
}

// Checks any workload: flows have two ends, groups exist, message ids are unique, and repeatedly
// starting the free flows starts all.
void expect_sound(const Workload& workload) {
  std::vector<std::uint32_t> open(workload.groups, 0);
  std::set<std::tuple<HostId, std::uint32_t, std::uint16_t, std::uint16_t, int>> messages;
  for (const PlannedFlow& planned : workload.flows) {
    EXPECT_NE(planned.flow.from, planned.flow.to);
    EXPECT_GT(planned.flow.bytes, 0U);
    const wire::MessageId& id = planned.flow.message;
    EXPECT_EQ(id.source, planned.flow.from);
    EXPECT_TRUE(messages
                    .emplace(planned.flow.from, id.operation, id.signature, id.piece,
                             static_cast<int>(id.phase))
                    .second);
    if (planned.group != kNoGroup) {
      ASSERT_LT(planned.group, workload.groups);
      ++open[planned.group];
    }
  }
  std::vector<bool> ended(workload.flows.size(), false);
  std::size_t left = workload.flows.size();
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < ended.size(); ++i) {
      const PlannedFlow& flow = workload.flows[i];
      if (!ended[i] && (flow.after_group == kNoGroup || open[flow.after_group] == 0)) {
        ended[i] = moved = true;
        --left;
        if (flow.group != kNoGroup) {
          --open[flow.group];
        }
      }
    }
  }
  EXPECT_EQ(left, 0U);
}

TEST(Patterns, EveryPatternIsSound) {
  for (const PatternKind kind :
       {PatternKind::kPermutation, PatternKind::kIncast, PatternKind::kAllToAll,
        PatternKind::kParameterServer, PatternKind::kRing, PatternKind::kBackground}) {
    for (const std::uint32_t hosts : {2U, 3U, 8U}) {
      SCOPED_TRACE(pattern_name(kind));
      PatternOptions options;
      options.kind = kind;
      options.hosts = hosts;
      options.first_host = 5;
      options.steps = 3;
      options.until = base::Instant(base::milliseconds(20));
      const Workload workload = planned(options);
      EXPECT_FALSE(workload.flows.empty());
      expect_sound(workload);
    }
  }
}

TEST(Patterns, PermutationHasEveryHostSendOnceAndReceiveOnce) {
  PatternOptions options;
  options.hosts = 10;
  options.first_host = 3;
  std::set<HostId> senders;
  std::set<HostId> receivers;
  for (const PlannedFlow& planned : planned(options).flows) {
    senders.insert(planned.flow.from);
    receivers.insert(planned.flow.to);
  }
  EXPECT_EQ(senders.size(), 10U);
  EXPECT_EQ(senders, receivers);
  EXPECT_EQ(*senders.begin(), 3U);
  EXPECT_EQ(*senders.rbegin(), 12U);
}

TEST(Patterns, PermutationDependsOnTheSeed) {
  PatternOptions options;
  options.hosts = 32;
  const auto receivers = [&options](std::uint64_t seed) {
    options.seed = seed;
    std::map<HostId, HostId> to;
    for (const PlannedFlow& planned : planned(options).flows) {
      to[planned.flow.from] = planned.flow.to;
    }
    return to;
  };
  EXPECT_EQ(receivers(1), receivers(1));
  EXPECT_NE(receivers(1), receivers(2));
}

TEST(Patterns, IncastHasAsManySendersAsAskedFor) {
  PatternOptions options{.kind = PatternKind::kIncast, .hosts = 9};
  EXPECT_EQ(planned(options).flows.size(), 8U);
  options.senders = 3;
  const Workload workload = planned(options);
  EXPECT_EQ(workload.flows.size(), 3U);
  for (const PlannedFlow& planned : workload.flows) {
    EXPECT_EQ(planned.flow.to, 0U);
  }
}

TEST(Patterns, AllToAllHasEveryPairOnce) {
  std::set<std::pair<HostId, HostId>> pairs;
  for (const PlannedFlow& planned : planned({.kind = PatternKind::kAllToAll, .hosts = 6}).flows) {
    pairs.emplace(planned.flow.from, planned.flow.to);
  }
  EXPECT_EQ(pairs.size(), 30U);
}

TEST(Patterns, RingMovesTwiceTheTensorLessTwoParts) {
  const Workload workload = planned({.kind = PatternKind::kRing, .hosts = 4, .bytes = 4'000'000});
  std::map<HostId, std::uint64_t> sent;
  for (const PlannedFlow& planned : workload.flows) {
    EXPECT_EQ(planned.flow.to, (planned.flow.from + 1) % 4);
    sent[planned.flow.from] += planned.flow.bytes;
  }
  for (const auto& [host, bytes] : sent) {
    EXPECT_EQ(bytes, 6'000'000U) << host;
  }
}

PatternOptions parameter_server_options() {
  return {.kind = PatternKind::kParameterServer,
          .hosts = 12,
          .bytes = 1'000'003,
          .steps = 2,
          .workers = 8,
          .servers = 4,
          .layers = 5};
}

TEST(ParameterServer, EveryWorkerPushesAndPullsItsWholeTensorEachStep) {
  const PatternOptions options = parameter_server_options();
  const ParameterServerHosts hosts = place_parameter_servers(options);
  EXPECT_EQ(hosts.workers.size(), 8U);
  EXPECT_EQ(hosts.servers.size(), 4U);
  std::map<HostId, std::uint64_t> sent;
  std::map<HostId, std::uint64_t> received;
  for (const PlannedFlow& planned : planned(options).flows) {
    sent[planned.flow.from] += planned.flow.bytes;
    received[planned.flow.to] += planned.flow.bytes;
  }
  for (const HostId worker : hosts.workers) {
    EXPECT_EQ(sent[worker], 2U * 1'000'003);
    EXPECT_EQ(received[worker], 2U * 1'000'003);
  }
}

TEST(ParameterServer, FrontLayersAreUrgentAndComputedLast) {
  PatternOptions options = parameter_server_options();
  options.compute = base::milliseconds(5);
  for (const PlannedFlow& planned : planned(options).flows) {
    const unsigned layer = planned.flow.message.signature;
    if (layer == 0) {
      EXPECT_EQ(planned.flow.priority, 7);
    } else if (layer == 4) {
      EXPECT_EQ(planned.flow.priority, 0);
    }
    if (planned.flow.message.phase == wire::Phase::kReduce) {
      EXPECT_EQ(planned.delay, base::milliseconds(5 - layer));
    }
  }
}

TEST(ParameterServer, PullsWaitForAllPushesOfTheirShard) {
  const Workload workload = planned(parameter_server_options());
  std::map<std::uint32_t, std::size_t> pushes;
  for (const PlannedFlow& planned : workload.flows) {
    if (planned.flow.message.phase == wire::Phase::kReduce) {
      ++pushes[planned.group];
    }
  }
  for (const PlannedFlow& planned : workload.flows) {
    if (planned.flow.message.phase == wire::Phase::kGather) {
      EXPECT_EQ(pushes[planned.after_group], 8U);
    }
  }
}

TEST(ParameterServer, GroupedWorkersTalkToOneServerOnly) {
  PatternOptions options = parameter_server_options();
  options.grouped = true;
  std::map<HostId, std::set<HostId>> servers_of;
  std::map<HostId, std::set<HostId>> workers_of;
  for (const PlannedFlow& planned : planned(options).flows) {
    if (planned.flow.message.phase == wire::Phase::kReduce) {
      servers_of[planned.flow.from].insert(planned.flow.to);
      workers_of[planned.flow.to].insert(planned.flow.from);
    }
  }
  EXPECT_EQ(servers_of.size(), 8U);
  EXPECT_EQ(workers_of.size(), 4U);
  for (const auto& [worker, servers] : servers_of) {
    EXPECT_EQ(servers.size(), 1U) << worker;
  }
  for (const auto& [server, workers] : workers_of) {
    EXPECT_EQ(workers.size(), 2U) << server;
  }
}

TEST(Background, OffersTheLoadAskedFor) {
  PatternOptions options;
  options.kind = PatternKind::kBackground;
  options.hosts = 16;
  options.load = 0.25;
  options.bytes_min = 1000;
  options.bytes_max = 100'000;
  options.link_rate = base::gigabits_per_second(10);
  options.until = base::Instant(base::milliseconds(100));
  double bytes = 0.0;
  for (const PlannedFlow& planned : planned(options).flows) {
    EXPECT_GE(planned.flow.bytes, 1000U);
    EXPECT_LE(planned.flow.bytes, 100'000U);
    bytes += static_cast<double>(planned.flow.bytes);
  }
  const double capacity = 16 * 10e9 / 8 * 0.1;
  EXPECT_NEAR(bytes / capacity, 0.25, 0.01);
}

TEST(Background, BurstsLeaveTheirPausesEmpty) {
  PatternOptions options;
  options.kind = PatternKind::kBackground;
  options.hosts = 16;
  options.until = base::Instant(base::milliseconds(20));
  options.on = base::milliseconds(1);
  options.off = base::milliseconds(3);
  const Workload workload = planned(options);
  EXPECT_GT(workload.flows.size(), 20U);
  for (const PlannedFlow& planned : workload.flows) {
    EXPECT_LT(planned.earliest.since_zero().count() % 4'000'000, 1'000'000);
  }
}

TEST(Patterns, BadNumbersGetASentence) {
  const auto refused = [](const PatternOptions& options, std::string_view part) {
    const base::Result<Workload> workload = plan_workload(options);
    return !workload.ok() && workload.status().message().find(part) != std::string::npos;
  };
  PatternOptions options;
  options.hosts = 1;
  EXPECT_TRUE(refused(options, "at least 2 hosts"));
  options.hosts = 4;
  options.bytes = 0;
  EXPECT_TRUE(refused(options, "0 bytes"));
  options.bytes = 1;
  options.kind = PatternKind::kIncast;
  options.senders = 4;
  EXPECT_TRUE(refused(options, "needs 5 hosts"));
  options.senders = 0;
  options.kind = PatternKind::kParameterServer;
  options.servers = 4;
  EXPECT_TRUE(refused(options, "1 to 3 servers"));
  options.servers = 2;
  options.workers = 3;
  EXPECT_TRUE(refused(options, "need 5 hosts"));
  options.kind = PatternKind::kAllToAll;
  options.hosts = 60'000;
  EXPECT_TRUE(refused(options, "fewer hosts"));
  options.hosts = 4;
  options.kind = PatternKind::kBackground;
  EXPECT_TRUE(refused(options, "until="));
}

}  // namespace
}  // namespace spillway::scenario
