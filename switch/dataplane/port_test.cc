// SPDX-License-Identifier: Apache-2.0
#include "switch/dataplane/port.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <functional>

#include "base/random.h"
#include "switch/dataplane/admission.h"
#include "switch/dataplane/port_config.h"
#include "switch/dataplane/scheduling.h"

namespace spillway::dataplane {
namespace {

constexpr std::uint8_t kFrontDscp = 41;  // priority 7

spillway_frame data(std::uint32_t bytes, std::uint8_t importance = SPILLWAY_IMPORTANCE_MARKED) {
  return {bytes, 1, spillway_ecn_of_importance(importance), importance, SPILLWAY_FRAME_TRIMMABLE};
}

spillway_frame control(std::uint32_t bytes) {
  return {bytes, SPILLWAY_DSCP_CONTROL, SPILLWAY_ECN_NOT_ECT, 0, SPILLWAY_FRAME_CONTROL};
}

spillway_frame foreign(std::uint32_t bytes, std::uint8_t ecn) {
  return {bytes, 0, ecn, 0, 0};
}

// A port whose decisions fill real queues of frame sizes.
class Port {
 public:
  explicit Port(const spillway_port_config& config) : config(config) {
    EXPECT_TRUE(validate(config).ok()) << validate(config).message();
  }

  spillway_decision offer(const spillway_frame& frame, std::uint32_t random = 0) {
    spillway_decision decision = {};
    spillway_admit(&config, &state, &frame, random, &decision);
    spillway_count(&counters, &frame, &decision);
    if (decision.verdict == SPILLWAY_ENQUEUE) {
      spillway_enqueued(&state, decision.queue, decision.bytes);
      queues[decision.queue].push_back(decision.bytes);
    }
    return decision;
  }

  // Returns the queue that was served, or SPILLWAY_NO_QUEUE.
  int serve() {
    const int queue = spillway_next_queue(&state);
    if (queue != SPILLWAY_NO_QUEUE) {
      auto& sizes = queues[static_cast<std::size_t>(queue)];
      served_bytes = sizes.front();
      spillway_dequeued(&config, &state, static_cast<std::uint8_t>(queue), sizes.front());
      sizes.pop_front();
    }
    return queue;
  }

  void fill(std::uint32_t bytes) {
    spillway_enqueued(&state, 0, bytes);
    queues[0].push_back(bytes);
  }

  spillway_port_config config;
  spillway_port_state state = {};
  spillway_port_counters counters = {};
  std::array<std::deque<std::uint32_t>, SPILLWAY_QUEUES> queues;
  std::uint32_t served_bytes = 0;
};

spillway_port_config config_of(spillway_port_mode mode) {
  spillway_port_config config = default_port_config(mode);
  config.queue_bytes = 10'000;
  if (mode == SPILLWAY_PORT_SPILLWAY) {
    config.early_drop_bytes = 2'000;
    config.ecn_bytes = 4'000;
    config.control_queue_bytes = 1'000;
  } else if (mode == SPILLWAY_PORT_TRIM) {
    config.control_queue_bytes = 1'000;
  } else if (mode == SPILLWAY_PORT_ECN) {
    config.red_min_bytes = 2'000;
    config.red_max_bytes = 6'000;
    config.red_max_percent = 50;
  }
  return config;
}

TEST(DropTailPort, TakesWhatFitsAndDropsWhatDoesNot) {
  Port port(config_of(SPILLWAY_PORT_DROP_TAIL));
  port.fill(8'500);
  EXPECT_EQ(port.offer(data(1'500)).reason, SPILLWAY_REASON_ADMITTED);  // exactly full
  const spillway_decision decision = port.offer(data(64));
  EXPECT_EQ(decision.verdict, SPILLWAY_DROP);
  EXPECT_EQ(decision.reason, SPILLWAY_REASON_QUEUE_FULL);
  EXPECT_EQ(port.counters.packets[SPILLWAY_REASON_QUEUE_FULL], 1U);
  EXPECT_EQ(port.counters.dropped[SPILLWAY_IMPORTANCE_MARKED], 1U);
}

TEST(DropTailPort, NeverMarksTrimsOrDropsEarly) {
  spillway_port_config config = config_of(SPILLWAY_PORT_SPILLWAY);
  config.mode = SPILLWAY_PORT_DROP_TAIL;  // with all of Spillway's thresholds set
  Port port(config);
  port.fill(8'000);
  EXPECT_EQ(port.offer(data(1'000, 0)).reason, SPILLWAY_REASON_ADMITTED);
  EXPECT_EQ(port.offer(data(1'000, 7)).reason, SPILLWAY_REASON_ADMITTED);
  EXPECT_EQ(port.offer(data(1'000, 7)).reason, SPILLWAY_REASON_QUEUE_FULL);
}

TEST(DropTailPort, PutsEverythingInOneQueueUnlessItHasPriorities) {
  Port single(config_of(SPILLWAY_PORT_DROP_TAIL));
  EXPECT_EQ(single.offer(control(64)).queue, 0);
  spillway_frame urgent = data(100);
  urgent.dscp = kFrontDscp;
  EXPECT_EQ(single.offer(urgent).queue, 0);

  spillway_port_config config = config_of(SPILLWAY_PORT_DROP_TAIL);
  config.priorities = 4;
  Port several(config);
  EXPECT_EQ(several.offer(control(64)).queue, 3);
  EXPECT_EQ(several.offer(urgent).queue, 3);
  EXPECT_EQ(several.offer(data(100)).queue, 0);
}

TEST(EcnPort, MarksFramesThatCanBeMarkedAndDropsTheOthersByTheSameRamp) {
  Port port(config_of(SPILLWAY_PORT_ECN));
  EXPECT_EQ(port.offer(foreign(100, SPILLWAY_ECN_ECT0)).reason, SPILLWAY_REASON_ADMITTED);
  port.fill(3'900);  // half way up the ramp: 25 %
  constexpr std::uint32_t kBelow = 0x3FFF0000U;
  constexpr std::uint32_t kAbove = 0x41000000U;
  const spillway_decision marked = port.offer(foreign(1, SPILLWAY_ECN_ECT0), kBelow);
  EXPECT_EQ(marked.verdict, SPILLWAY_ENQUEUE);
  EXPECT_EQ(marked.reason, SPILLWAY_REASON_MARKED);
  EXPECT_EQ(marked.ecn, SPILLWAY_ECN_CE);
  EXPECT_EQ(port.offer(foreign(1, SPILLWAY_ECN_ECT0), kAbove).reason, SPILLWAY_REASON_ADMITTED);
  EXPECT_EQ(port.offer(foreign(1, SPILLWAY_ECN_NOT_ECT), kBelow).reason, SPILLWAY_REASON_RED);
  EXPECT_EQ(port.offer(foreign(1, SPILLWAY_ECN_NOT_ECT), kAbove).reason, SPILLWAY_REASON_ADMITTED);
}

TEST(EcnPort, BeyondTheRampNothingPassesUnmarkedAndNothingBeyondTheLimitAtAll) {
  Port port(config_of(SPILLWAY_PORT_ECN));
  port.fill(6'000);
  EXPECT_EQ(port.offer(foreign(100, SPILLWAY_ECN_ECT1), UINT32_MAX).reason, SPILLWAY_REASON_MARKED);
  EXPECT_EQ(port.offer(foreign(100, SPILLWAY_ECN_NOT_ECT), UINT32_MAX).reason, SPILLWAY_REASON_RED);
  EXPECT_EQ(port.offer(foreign(9'000, SPILLWAY_ECN_ECT0), 0).reason, SPILLWAY_REASON_QUEUE_FULL);
}

TEST(EcnPort, MarksByAStepWhereTheRampHasNoLength) {
  spillway_port_config config = config_of(SPILLWAY_PORT_ECN);
  config.red_min_bytes = config.red_max_bytes = 3'000;
  Port port(config);
  port.fill(2'999);
  EXPECT_EQ(port.offer(foreign(1, SPILLWAY_ECN_ECT0), 0).reason, SPILLWAY_REASON_ADMITTED);
  EXPECT_EQ(port.offer(foreign(1, SPILLWAY_ECN_ECT0), UINT32_MAX).reason, SPILLWAY_REASON_MARKED);
}

TEST(EcnPort, RampIsLinearForShortAndLongQueues) {
  for (const std::uint32_t span : {100U, 70'000U, 1U << 21, 1U << 25}) {
    spillway_port_config config = config_of(SPILLWAY_PORT_ECN);
    config.red_min_bytes = 1'000;
    config.red_max_bytes = config.red_min_bytes + span;
    for (const std::uint32_t percent : {10U, 50U, 90U}) {
      const std::uint32_t queued = config.red_min_bytes + span / 100 * percent;
      const double expected = 65536.0 * 0.5 * (span / 100 * percent) / span;
      EXPECT_NEAR(spillway_red_probability(&config, queued), expected, 20) << span;
    }
  }
}

TEST(TrimPort, CutsDataThatDoesNotFitAndSendsItThroughTheControlQueue) {
  Port port(config_of(SPILLWAY_PORT_TRIM));
  port.fill(9'000);
  const spillway_decision decision = port.offer(data(1'500));
  EXPECT_EQ(decision.verdict, SPILLWAY_ENQUEUE);
  EXPECT_EQ(decision.reason, SPILLWAY_REASON_TRIMMED);
  EXPECT_EQ(decision.queue, SPILLWAY_CONTROL_QUEUE);
  EXPECT_EQ(decision.bytes, 256U);
  EXPECT_EQ(decision.dscp, SPILLWAY_DSCP_TRIMMED);
  EXPECT_EQ(port.counters.trimmed[SPILLWAY_IMPORTANCE_MARKED], 1U);
  EXPECT_EQ(port.counters.bytes[SPILLWAY_REASON_TRIMMED], 1'500U);
}

TEST(TrimPort, SendsDataTooShortToTrimWholeThroughTheControlQueue) {
  Port port(config_of(SPILLWAY_PORT_TRIM));
  port.fill(9'900);
  const spillway_decision decision = port.offer(data(256));
  EXPECT_EQ(decision.reason, SPILLWAY_REASON_DIVERTED);
  EXPECT_EQ(decision.queue, SPILLWAY_CONTROL_QUEUE);
  EXPECT_EQ(decision.bytes, 256U);
  EXPECT_EQ(decision.dscp, 1);
}

TEST(TrimPort, DropsOnlyWhenTheControlQueueIsFullToo) {
  Port port(config_of(SPILLWAY_PORT_TRIM));
  port.fill(9'900);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(port.offer(data(1'500)).reason, SPILLWAY_REASON_TRIMMED);
  }
  EXPECT_EQ(port.offer(data(1'500)).reason, SPILLWAY_REASON_CONTROL_FULL);
  EXPECT_EQ(port.offer(control(300)).reason, SPILLWAY_REASON_CONTROL_FULL);
  EXPECT_EQ(port.counters.dropped_control, 1U);
  EXPECT_EQ(port.counters.dropped[SPILLWAY_IMPORTANCE_MARKED], 1U);
  EXPECT_EQ(port.offer(control(64)).reason, SPILLWAY_REASON_ADMITTED);
}

TEST(TrimPort, DropsForeignFramesThatDoNotFitAndOnesItMayNotTrim) {
  Port port(config_of(SPILLWAY_PORT_TRIM));
  port.fill(9'900);
  EXPECT_EQ(port.offer(foreign(1'500, SPILLWAY_ECN_ECT0)).reason, SPILLWAY_REASON_QUEUE_FULL);
  port.config.trim_bytes = 0;
  EXPECT_EQ(port.offer(data(1'500)).reason, SPILLWAY_REASON_QUEUE_FULL);
}

TEST(TrimPort, QueuesPacketsThatWereTrimmedBeforeWithControl) {
  Port port(config_of(SPILLWAY_PORT_TRIM));
  spillway_frame trimmed = data(256);
  trimmed.dscp = SPILLWAY_DSCP_TRIMMED;
  EXPECT_EQ(port.offer(trimmed).queue, SPILLWAY_CONTROL_QUEUE);
}

TEST(SpillwayPort, DropsTheLeastImportantFirstAndTheImportantNeverEarly) {
  const spillway_port_config config = config_of(SPILLWAY_PORT_SPILLWAY);
  for (std::uint8_t importance = 0; importance < SPILLWAY_PRIORITIES; ++importance) {
    const std::uint32_t from = 2'000U + 2'000U * importance;  // of 10,000
    Port below(config);
    below.fill(from - 1);
    EXPECT_NE(below.offer(data(1, importance)).reason, SPILLWAY_REASON_EARLY);
    if (importance < SPILLWAY_IMPORTANCE_MARKED) {
      Port at(config);
      at.fill(from);
      EXPECT_EQ(at.offer(data(1, importance)).reason, SPILLWAY_REASON_EARLY);
      EXPECT_EQ(at.counters.dropped[importance], 1U);
    } else {
      Port full(config);
      full.fill(config.queue_bytes);
      EXPECT_EQ(full.offer(data(1'000, importance)).reason, SPILLWAY_REASON_TRIMMED);
    }
  }
}

TEST(SpillwayPort, DropsNothingEarlyThatIsNotSpillwayDataOrWhenTold) {
  Port port(config_of(SPILLWAY_PORT_SPILLWAY));
  port.fill(9'000);
  EXPECT_EQ(port.offer(foreign(100, SPILLWAY_ECN_NOT_ECT)).reason, SPILLWAY_REASON_ADMITTED);
  EXPECT_EQ(port.offer(control(100)).reason, SPILLWAY_REASON_ADMITTED);
  port.config.early_drop_bytes = 0;
  EXPECT_EQ(port.offer(data(100, 0)).reason, SPILLWAY_REASON_ADMITTED);
}

TEST(SpillwayPort, MarksImportantDataFromItsThresholdOn) {
  Port port(config_of(SPILLWAY_PORT_SPILLWAY));
  port.fill(3'999);
  EXPECT_EQ(port.offer(data(1)).reason, SPILLWAY_REASON_ADMITTED);
  const spillway_decision marked = port.offer(data(1));
  EXPECT_EQ(marked.reason, SPILLWAY_REASON_MARKED);
  EXPECT_EQ(marked.ecn, SPILLWAY_ECN_CE);
  port.config.ecn_bytes = 0;
  EXPECT_EQ(port.offer(data(1)).reason, SPILLWAY_REASON_ADMITTED);
}

TEST(SpillwayPort, EachPriorityHasAQueueOfItsOwn) {
  Port port(config_of(SPILLWAY_PORT_SPILLWAY));
  for (std::uint8_t priority = 0; priority < SPILLWAY_PRIORITIES; ++priority) {
    spillway_frame frame = data(100);
    frame.dscp = spillway_dscp_of_priority(priority);
    EXPECT_EQ(port.offer(frame).queue, priority);
  }
  for (int priority = SPILLWAY_PRIORITIES - 1; priority >= 0; --priority) {
    EXPECT_EQ(port.serve(), priority);  // the most urgent first
  }
  EXPECT_EQ(port.serve(), SPILLWAY_NO_QUEUE);
}

TEST(Scheduling, ControlGetsItsShareOfASaturatedLink) {
  for (const std::uint8_t share : {10, 50, 90}) {
    spillway_port_config config = config_of(SPILLWAY_PORT_SPILLWAY);
    config.control_share_percent = share;
    config.queue_bytes = config.control_queue_bytes = 100'000;
    config.early_drop_bytes = 0;
    Port port(config);
    std::uint64_t control_bytes = 0;
    std::uint64_t all_bytes = 0;
    for (int i = 0; i < 5'000; ++i) {
      port.offer(control(256));
      port.offer(control(256));
      port.offer(data(1'500));
      const int queue = port.serve();
      control_bytes += queue == SPILLWAY_CONTROL_QUEUE ? port.served_bytes : 0;
      all_bytes += port.served_bytes;
    }
    EXPECT_NEAR(100.0 * static_cast<double>(control_bytes) / static_cast<double>(all_bytes), share,
                2.0);
  }
}

TEST(Scheduling, AnIdleSideSavesUpNothing) {
  spillway_port_config config = config_of(SPILLWAY_PORT_SPILLWAY);
  config.queue_bytes = config.control_queue_bytes = 1'000'000;
  config.early_drop_bytes = 0;
  Port port(config);
  for (int i = 0; i < 100; ++i) {  // only control for a long time
    port.offer(control(1'000));
    EXPECT_EQ(port.serve(), SPILLWAY_CONTROL_QUEUE);
  }
  int control_frames = 0;
  for (int i = 0; i < 20; ++i) {
    port.offer(control(1'000));
    port.offer(data(1'000));
    control_frames += port.serve() == SPILLWAY_CONTROL_QUEUE ? 1 : 0;
  }
  EXPECT_NEAR(control_frames, 10, 1);
}

spillway_frame random_frame(base::RandomSequence& random) {
  const auto importance = static_cast<std::uint8_t>(random.next_below(8));
  const auto bytes = static_cast<std::uint32_t>(64 + random.next_below(9'000));
  spillway_frame frame = data(bytes, importance);
  switch (random.next_below(5)) {
    case 0:
      frame = control(static_cast<std::uint32_t>(64 + random.next_below(400)));
      break;
    case 1:
      frame = foreign(bytes, static_cast<std::uint8_t>(random.next_below(4)));
      frame.dscp = static_cast<std::uint8_t>(random.next_below(48));
      break;
    default:
      frame.dscp = spillway_dscp_of_priority(
          static_cast<std::uint8_t>(random.next_below(SPILLWAY_PRIORITIES)));
  }
  return frame;
}

void expect_lawful(const Port& port, const spillway_frame& frame,
                   const spillway_decision& decision) {
  const bool is_control = (frame.flags & SPILLWAY_FRAME_CONTROL) != 0;
  const bool important = frame.importance >= SPILLWAY_IMPORTANCE_MARKED;
  EXPECT_EQ(decision.verdict == SPILLWAY_DROP, decision.reason >= SPILLWAY_REASON_QUEUE_FULL);
  EXPECT_FALSE(is_control && decision.reason == SPILLWAY_REASON_TRIMMED);
  EXPECT_FALSE(important && decision.reason == SPILLWAY_REASON_EARLY);
  EXPECT_LE(decision.bytes, frame.bytes);
  EXPECT_EQ(decision.bytes != frame.bytes,
            decision.dscp != frame.dscp);  // the DSCP changes exactly if the frame is cut
  EXPECT_FALSE(decision.ecn == SPILLWAY_ECN_CE && frame.ecn == SPILLWAY_ECN_NOT_ECT);
  for (int queue = 0; queue < SPILLWAY_DATA_QUEUES; ++queue) {
    EXPECT_LE(port.state.bytes[queue], port.config.queue_bytes);
    EXPECT_TRUE(queue < port.config.priorities || port.state.packets[queue] == 0);
  }
  EXPECT_LE(port.state.bytes[SPILLWAY_CONTROL_QUEUE], port.config.control_queue_bytes);
}

void expect_serves_lawfully(Port& port) {
  std::size_t waiting = 0;
  int most_urgent = SPILLWAY_NO_QUEUE;
  for (int queue = 0; queue < SPILLWAY_QUEUES; ++queue) {
    const std::size_t packets = port.queues[static_cast<std::size_t>(queue)].size();
    EXPECT_EQ(port.state.packets[queue], packets);
    waiting += packets;
    if (packets > 0 && queue < SPILLWAY_DATA_QUEUES) {
      most_urgent = queue;
    }
  }
  const int served = port.serve();
  EXPECT_EQ(served == SPILLWAY_NO_QUEUE, waiting == 0);  // work conserving
  EXPECT_TRUE(served == SPILLWAY_NO_QUEUE || served == SPILLWAY_CONTROL_QUEUE ||
              served == most_urgent);
}

TEST(Port, KeepsItsLawsUnderRandomTraffic) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    base::RandomSequence random(seed);
    const auto mode = static_cast<spillway_port_mode>(random.next_below(4));
    spillway_port_config config = default_port_config(mode);
    config.priorities = static_cast<std::uint8_t>(1 + random.next_below(8));
    config.queue_bytes = static_cast<std::uint32_t>(30'000 + random.next_below(100'000));
    config.early_drop_bytes = config.queue_bytes / 4;
    Port port(config);
    const std::uint64_t load = 1 + random.next_below(4);  // frames offered per frame served
    std::uint64_t offered = 0;
    for (int i = 0; i < 4'000; ++i) {
      for (std::uint64_t k = 0; k < load; ++k) {
        const spillway_frame frame = random_frame(random);
        const spillway_decision decision = port.offer(frame, random.next_word());
        expect_lawful(port, frame, decision);
        ++offered;
      }
      expect_serves_lawfully(port);
    }
    std::uint64_t counted = 0;
    for (const std::uint64_t packets : port.counters.packets) {
      counted += packets;
    }
    EXPECT_EQ(counted, offered);
    if (::testing::Test::HasFailure()) {
      FAIL() << "seed " << seed << ", " << port_mode_name(mode);
    }
  }
}

// ------------------------------------------------------------------ configs

TEST(PortConfig, DefaultsOfEveryModeAreValid) {
  for (int mode = SPILLWAY_PORT_DROP_TAIL; mode <= SPILLWAY_PORT_SPILLWAY; ++mode) {
    const auto config = default_port_config(static_cast<spillway_port_mode>(mode));
    EXPECT_TRUE(validate(config).ok()) << validate(config).message();
    EXPECT_EQ(config.mode, mode);
  }
}

struct Mistake {
  spillway_port_mode mode;
  std::function<void(spillway_port_config&)> make;
  std::string_view words;  // expected in the message
};

TEST(PortConfig, EveryMistakeIsNamed) {
  const Mistake mistakes[] = {
      {SPILLWAY_PORT_DROP_TAIL, [](auto& c) { c.mode = 4; }, "mode 4"},
      {SPILLWAY_PORT_DROP_TAIL, [](auto& c) { c.priorities = 0; }, "not 0"},
      {SPILLWAY_PORT_DROP_TAIL, [](auto& c) { c.priorities = 9; }, "not 9"},
      {SPILLWAY_PORT_DROP_TAIL, [](auto& c) { c.queue_bytes = 0; }, "queue of 0"},
      {SPILLWAY_PORT_DROP_TAIL, [](auto& c) { c.queue_bytes = UINT32_MAX; }, "queue of"},
      {SPILLWAY_PORT_ECN, [](auto& c) { c.red_min_bytes = c.red_max_bytes + 1; }, "begins at"},
      {SPILLWAY_PORT_ECN, [](auto& c) { c.red_max_bytes = UINT32_MAX; }, "ends at"},
      {SPILLWAY_PORT_ECN, [](auto& c) { c.red_max_percent = 101; }, "101 %"},
      {SPILLWAY_PORT_TRIM, [](auto& c) { c.control_queue_bytes = 0; }, "control queue of 0"},
      {SPILLWAY_PORT_TRIM, [](auto& c) { c.control_share_percent = 0; }, "share"},
      {SPILLWAY_PORT_TRIM, [](auto& c) { c.control_share_percent = 101; }, "share"},
      {SPILLWAY_PORT_TRIM, [](auto& c) { c.trim_bytes = 42; }, "trimming to 42"},
      {SPILLWAY_PORT_TRIM, [](auto& c) { c.trim_bytes = 70'000; }, "trimming to 70000"},
      {SPILLWAY_PORT_TRIM, [](auto& c) { c.trimmed_dscp = 64; }, "DSCP 64"},
      {SPILLWAY_PORT_SPILLWAY, [](auto& c) { c.early_drop_bytes = c.queue_bytes + 1; }, "early"},
  };
  for (const Mistake& mistake : mistakes) {
    spillway_port_config config = default_port_config(mistake.mode);
    mistake.make(config);
    const base::Status status = validate(config);
    ASSERT_FALSE(status.ok()) << mistake.words;
    EXPECT_NE(status.message().find(mistake.words), std::string::npos) << status.message();
  }
}

TEST(PortConfig, CountersOfPortsAddUp) {
  spillway_port_counters one = {};
  one.packets[SPILLWAY_REASON_TRIMMED] = 2;
  one.bytes[SPILLWAY_REASON_TRIMMED] = 3'000;
  one.trimmed[4] = 2;
  one.dropped[0] = 5;
  one.dropped_control = 1;
  spillway_port_counters sum = {};
  add_counters(one, sum);
  add_counters(one, sum);
  EXPECT_EQ(sum.packets[SPILLWAY_REASON_TRIMMED], 4U);
  EXPECT_EQ(sum.bytes[SPILLWAY_REASON_TRIMMED], 6'000U);
  EXPECT_EQ(sum.trimmed[4], 4U);
  EXPECT_EQ(sum.dropped[0], 10U);
  EXPECT_EQ(sum.dropped_control, 2U);
}

}  // namespace

}  // namespace spillway::dataplane
