// SPDX-License-Identifier: Apache-2.0
//
// The parts of a network, each on its own.
#include "sim/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "sim/packet.h"
#include "sim/scenario/topology.h"
#include "sim/switch_node.h"

namespace spillway::sim {
namespace {

// ------------------------------------------------------------------ events

using base::Instant;
using base::nanoseconds;

constexpr Instant kForever(base::Duration(INT64_MAX));

Instant at(std::int64_t ns) {
  return Instant(nanoseconds(ns));
}

// Records events, and may schedule more.
class Recorder final : public Actor {
 public:
  void on_event(std::uint64_t argument, Instant now) override {
    seen.emplace_back(now.since_zero().count(), argument);
    if (then) {
      then(argument, now);
    }
  }
  std::vector<std::pair<std::int64_t, std::uint64_t>> seen;
  std::function<void(std::uint64_t, Instant)> then;
};

void run_all(EventQueue& queue) {
  while (queue.run_next(kForever)) {
  }
}

TEST(EventQueue, RunsEventsOfOneInstantInTheOrderTheyWereScheduled) {
  EventQueue queue;
  Recorder recorder;
  for (std::uint64_t i = 0; i < 10; ++i) {
    queue.schedule(at(5), recorder, i);
  }
  run_all(queue);
  ASSERT_EQ(recorder.seen.size(), 10U);
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(recorder.seen[i], (std::pair<std::int64_t, std::uint64_t>(5, i)));
  }
}

TEST(EventQueue, AFarEventRunsBeforeALaterScheduledOneOfTheSameInstant) {
  EventQueue queue;
  Recorder recorder;
  queue.schedule(at(100'000), recorder, 1);  // far, into the heap
  queue.schedule(at(40'000), recorder, 0);
  recorder.then = [&](std::uint64_t argument, Instant) {
    if (argument == 0) {
      queue.schedule(at(100'000), recorder, 2);  // near by then
    }
  };
  run_all(queue);
  EXPECT_EQ(recorder.seen, (std::vector<std::pair<std::int64_t, std::uint64_t>>{
                               {40'000, 0}, {100'000, 1}, {100'000, 2}}));
}

TEST(EventQueue, AnEventScheduledForNowRunsAfterThoseThatWait) {
  EventQueue queue;
  Recorder recorder;
  queue.schedule(at(7), recorder, 0);
  queue.schedule(at(7), recorder, 1);
  recorder.then = [&](std::uint64_t argument, Instant now) {
    if (argument == 0) {
      queue.schedule(now, recorder, 2);
    }
  };
  run_all(queue);
  EXPECT_EQ(recorder.seen,
            (std::vector<std::pair<std::int64_t, std::uint64_t>>{{7, 0}, {7, 1}, {7, 2}}));
}

TEST(EventQueue, StopsAtTheLimitAndGoesOnFromThere) {
  EventQueue queue;
  Recorder recorder;
  queue.schedule(at(10), recorder, 0);
  queue.schedule(at(11), recorder, 1);
  queue.schedule(at(5'000'000'000), recorder, 2);
  EXPECT_TRUE(queue.run_next(at(10)));
  EXPECT_FALSE(queue.run_next(at(10)));
  EXPECT_EQ(queue.now(), at(10));
  EXPECT_TRUE(queue.run_next(at(11)));
  EXPECT_FALSE(queue.run_next(at(4'999'999'999)));
  EXPECT_TRUE(queue.run_next(at(5'000'000'000)));
  EXPECT_EQ(queue.now(), at(5'000'000'000));
  EXPECT_FALSE(queue.run_next(kForever));
  EXPECT_EQ(queue.pending(), 0U);
  EXPECT_EQ(queue.events_run(), 3U);
}

TEST(EventQueue, FindsEventsAllAroundTheWheel) {
  EventQueue queue;
  Recorder recorder;
  std::int64_t time = 1;
  for (const std::int64_t step :
       {65'535, 1, 63, 64, 65, 4095, 4096, 65'535, 65'536, 65'537, 200'000}) {
    time += step;
    queue.schedule(at(time), recorder, 0);
    ASSERT_TRUE(queue.run_next(kForever));
    EXPECT_EQ(recorder.seen.back().first, time) << "step " << step;
  }
}

// Random near and far schedules that grow while they run, compared with a stable sort.
TEST(EventQueue, RunsRandomSchedulesInTheOrderOfAStableSort) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EventQueue queue;
    Recorder recorder;
    base::RandomSequence random(seed);
    std::vector<std::pair<std::int64_t, std::uint64_t>> expected;
    const auto schedule_one = [&](std::int64_t now) {
      constexpr std::array<std::uint64_t, 4> kReach = {4, 3'000, 70'000, 3'000'000};
      const auto time =
          now + static_cast<std::int64_t>(random.next_below(kReach[random.next_below(4)]));
      const std::uint64_t name = expected.size();
      expected.emplace_back(time, name);
      queue.schedule(at(time), recorder, name);
    };
    for (int i = 0; i < 200; ++i) {
      schedule_one(0);
    }
    recorder.then = [&](std::uint64_t, Instant now) {
      for (std::uint64_t i = random.next_below(3); i > 0 && expected.size() < 5000; --i) {
        schedule_one(now.since_zero().count());
      }
    };
    run_all(queue);
    std::ranges::stable_sort(expected, {}, &std::pair<std::int64_t, std::uint64_t>::first);
    EXPECT_EQ(recorder.seen, expected) << "seed " << seed;
  }
}

TEST(EventQueueDeathTest, SchedulingThePastIsABug) {
  EventQueue queue;
  Recorder recorder;
  queue.schedule(at(10), recorder, 0);
  run_all(queue);
  EXPECT_DEATH(queue.schedule(at(9), recorder, 1), "check failed");
}

TEST(EventQueue, SaysWhenTheNextEventIs) {
  EventQueue queue;
  Recorder recorder;
  EXPECT_FALSE(queue.next_time());
  queue.schedule(at(1'000'000), recorder, 3);
  EXPECT_EQ(queue.next_time(), at(1'000'000));  // far
  queue.schedule(at(70), recorder, 1);
  queue.schedule(at(70), recorder, 2);
  EXPECT_EQ(queue.next_time(), at(70));  // near
  ASSERT_TRUE(queue.run_next(kForever));
  EXPECT_EQ(queue.next_time(), at(70));  // due
  ASSERT_TRUE(queue.run_next(kForever));
  EXPECT_EQ(queue.next_time(), at(1'000'000));
  ASSERT_TRUE(queue.run_next(kForever));
  EXPECT_FALSE(queue.next_time());
}

// ------------------------------------------------------------------ packets

TEST(PacketPool, ReferencesStayGoodWhileThePoolGrows) {
  PacketPool pool;
  Packet& first = pool[pool.allocate()];
  first.bytes = 77;
  for (int i = 0; i < 10'000; ++i) {
    pool.allocate();
  }
  EXPECT_EQ(first.bytes, 77U);
  EXPECT_EQ(pool.in_use(), 10'001U);
}

TEST(PacketPool, GivesReleasedPacketsOutAgainAsNew) {
  PacketPool pool;
  const PacketIndex index = pool.allocate();
  pool[index].bytes = 1'500;
  pool[index].corrupt = true;
  pool.attach_payload(pool[index], 100);
  EXPECT_EQ(pool.payloads_in_use(), 1U);
  pool.release(index);
  EXPECT_EQ(pool.in_use(), 0U);
  EXPECT_EQ(pool.payloads_in_use(), 0U);
  const PacketIndex again = pool.allocate();
  EXPECT_EQ(again, index);
  EXPECT_EQ(pool[again].bytes, 0U);
  EXPECT_FALSE(pool[again].corrupt);
  EXPECT_TRUE(pool.payload(pool[again]).empty());
}

TEST(PacketPool, TrimCountsWhatTheBufferLeavesOut) {
  PacketPool pool;
  Packet& datagram = pool[pool.allocate()];
  datagram.bytes = 1'042;
  pool.attach_payload(datagram, 1'000);
  pool.trim(datagram, 206);
  EXPECT_EQ(pool.payload(datagram).size(), 206U - kFrameHeaderBytes);
  Packet& frame = pool[pool.allocate()];
  frame.bytes = 1'042;
  frame.absent_bytes = 0;
  pool.attach_payload(frame, 1'042);
  pool.trim(frame, 206);
  EXPECT_EQ(pool.payload(frame).size(), 206U);
}

TEST(PacketPool, AFrameGrowsWithItsPayload) {
  PacketPool pool;
  Packet& packet = pool[pool.allocate()];
  packet.bytes = 10 + kFrameHeaderBytes;
  std::ranges::fill(pool.attach_payload(packet, 10), std::uint8_t{7});
  pool.resize_payload(packet, 30);
  EXPECT_EQ(packet.bytes, 30 + kFrameHeaderBytes);
  ASSERT_EQ(pool.payload(packet).size(), 30U);
  EXPECT_EQ(pool.payload(packet)[9], 7);
  EXPECT_EQ(pool.payload(packet)[10], 0);
}

TEST(PacketPool, ADuplicateHasItsOwnBytes) {
  PacketPool pool;
  const PacketIndex original = pool.allocate();
  std::ranges::fill(pool.attach_payload(pool[original], 4), std::uint8_t{1});
  pool[original].label = 9;
  const PacketIndex copy = pool.duplicate(original);
  pool.payload(pool[copy])[0] = 2;
  EXPECT_EQ(pool.payload(pool[original])[0], 1);
  EXPECT_EQ(pool.payload(pool[copy])[1], 1);
  EXPECT_EQ(pool[copy].label, 9U);
}

TEST(PacketPool, TrimmingCutsTheFrameAndItsPayload) {
  PacketPool pool;
  const PacketIndex index = pool.allocate();
  pool[index].bytes = 1'500;
  pool.attach_payload(pool[index], 1'500 - kFrameHeaderBytes);
  pool.trim(pool[index], 256);
  EXPECT_EQ(pool[index].bytes, 256U);
  EXPECT_EQ(pool.payload(pool[index]).size(), 256 - kFrameHeaderBytes);
}

// ------------------------------------------------------------------ switches

TEST(Routing, LeafSpineGoesUpByEverySpineAndDownByOnePort) {
  const scenario::Topology topology =
      scenario::leaf_spine({.hosts = 8, .leaves = 2, .spines = 3}).value();
  const std::vector<Routes> routes = shortest_routes(topology);
  const Routes& leaf0 = routes[0];
  EXPECT_EQ(leaf0.ports(leaf0.group_of(1)).size(), 1U);  // its own host
  EXPECT_EQ(leaf0.ports(leaf0.group_of(7)).size(), 3U);
  EXPECT_EQ(leaf0.group_of(6), leaf0.group_of(7));  // the same choice, stored once
  const Routes& spine0 = routes[2];
  EXPECT_EQ(spine0.ports(spine0.group_of(0)).size(), 1U);
  EXPECT_NE(spine0.group_of(0), spine0.group_of(7));
}

TEST(Routing, AFatTreeHasAllItsEqualPaths) {
  const scenario::Topology topology = scenario::fat_tree({.k = 4}).value();
  const std::vector<Routes> routes = shortest_routes(topology);
  const Routes& edge0 = routes[0];
  EXPECT_EQ(edge0.ports(edge0.group_of(0)).size(), 1U);
  EXPECT_EQ(edge0.ports(edge0.group_of(2)).size(), 2U);   // same pod
  EXPECT_EQ(edge0.ports(edge0.group_of(15)).size(), 2U);  // another pod
  const Routes& aggregation0 = routes[8];
  EXPECT_EQ(aggregation0.ports(aggregation0.group_of(15)).size(), 2U);
  EXPECT_EQ(aggregation0.ports(aggregation0.group_of(0)).size(), 1U);
}

TEST(Routing, DoesNotGoThroughHostsOrLongerPaths) {
  // A triangle of switches: the direct link only, although there is a path around.
  const auto parsed = scenario::parse_topology(
      "switch x\nswitch y\nswitch z\nhost a\nhost b\nlink a x\nlink b y\n"
      "link x y\nlink x z\nlink z y\n");
  ASSERT_TRUE(parsed.ok());
  const std::vector<Routes> routes = shortest_routes(*parsed);
  EXPECT_TRUE(
      std::ranges::equal(routes[0].ports(routes[0].group_of(1)), std::array{PortNumber{1}}));
  EXPECT_TRUE(
      std::ranges::equal(routes[2].ports(routes[2].group_of(1)), std::array{PortNumber{1}}));
}

// The neighbour that a switch's port leads to; ports are numbered in the order of the links.
scenario::NodeId neighbour(const scenario::Topology& topology, scenario::NodeId node,
                           PortNumber port) {
  PortNumber next = 0;
  for (const scenario::Link& link : topology.links) {
    if ((link.a == node || link.b == node) && next++ == port) {
      return link.a == node ? link.b : link.a;
    }
  }
  return node;
}

// Whichever port a switch chooses, the next switch does not route back.
void expect_no_way_back(const scenario::Topology& topology) {
  const std::vector<Routes> routes = shortest_routes(topology);
  const std::uint32_t hosts = topology.hosts();
  for (HostId host = 0; host < hosts; ++host) {
    for (scenario::NodeId at = hosts; at < hosts + routes.size(); ++at) {
      const Routes& here = routes[at - hosts];
      for (const PortNumber port : here.ports(here.group_of(host))) {
        const scenario::NodeId next = neighbour(topology, at, port);
        if (next < hosts) {
          EXPECT_EQ(next, host);
          continue;
        }
        const Routes& there = routes[next - hosts];
        for (const PortNumber onward : there.ports(there.group_of(host))) {
          EXPECT_NE(neighbour(topology, next, onward), at);
        }
      }
    }
  }
}

TEST(Routing, NoSwitchSendsBackWhereItCameFrom) {
  expect_no_way_back(scenario::leaf_spine({.hosts = 8, .leaves = 2, .spines = 3}).value());
  expect_no_way_back(scenario::fat_tree({.k = 4}).value());
}

}  // namespace
}  // namespace spillway::sim
