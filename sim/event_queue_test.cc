// SPDX-License-Identifier: Apache-2.0
#include "sim/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/random.h"

namespace spillway::sim {
namespace {

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

}  // namespace
}  // namespace spillway::sim
