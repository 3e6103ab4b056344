// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/random.h"
#include "sim/stacks/tcp_stack.h"
#include "transport/endpoint.h"
#include "wire/packet.h"

namespace spillway::sim {
namespace {

using base::Instant;

constexpr base::Duration kDelay = base::microseconds(10);
constexpr base::Duration kSpacing = base::microseconds(1);  // between two packets of a host

// Two stacks and a wire between them; a test decides what the wire does to each packet.
class Pipe : public FlowListener {
 public:
  // Extra delay of a packet; unset: the packet is lost. May change the packet.
  using Treatment = std::function<std::optional<base::Duration>(Packet&)>;

  explicit Pipe(const scenario::TcpConfig& config)
      : stacks_{TcpStack(config, 0, *this), TcpStack(config, 0, *this)} {}

  void start(const Flow& flow) {
    stacks_[flow.to].expect_flow(flow, now_);
    stacks_[flow.from].start_flow(flow, now_);
  }

  // Runs until nothing is left to do, or until the limit.
  void run(Instant limit = Instant(base::seconds(100))) {
    while (now_ <= limit) {
      poll(0);
      poll(1);
      const Instant next = std::min(
          {next_arrival(), next_poll(), stacks_[0].next_timeout(), stacks_[1].next_timeout()});
      if (next == transport::kNever) {
        return;
      }
      now_ = std::max(now_, next);
      deliver();
      stacks_[0].on_timeout(now_);
      stacks_[1].on_timeout(now_);
    }
  }

  void on_flow_end(const FlowResult& result, Instant now) override {
    EXPECT_TRUE(ends.emplace(result.id, now).second) << "flow " << result.id << " ended twice";
  }

  TcpCounters counters(HostId host) const { return stacks_[host].counters(); }
  Instant now() const { return now_; }

  Treatment treatment = [](Packet&) { return base::Duration(); };
  std::map<FlowId, Instant> ends;

 private:
  void poll(HostId host) {
    Packet packet;
    blocked_[host] = false;
    if (now_ < free_at_[host]) {
      blocked_[host] = true;
      return;
    }
    if (!stacks_[host].poll_transmit(now_, packet)) {
      return;
    }
    packet.from = host;
    packet.sent_bytes = packet.bytes;
    free_at_[host] = now_ + kSpacing;
    blocked_[host] = true;
    if (const auto later = treatment(packet)) {
      arrivals_.emplace(now_ + kDelay + *later, packet);
    }
  }

  void deliver() {
    while (!arrivals_.empty() && arrivals_.begin()->first <= now_) {
      Packet packet = arrivals_.begin()->second;
      arrivals_.erase(arrivals_.begin());
      stacks_[packet.to].on_packet(packet, now_);
    }
  }

  Instant next_arrival() const {
    return arrivals_.empty() ? transport::kNever : arrivals_.begin()->first;
  }
  Instant next_poll() const {
    const Instant first = blocked_[0] ? free_at_[0] : transport::kNever;
    const Instant second = blocked_[1] ? free_at_[1] : transport::kNever;
    return std::min(first, second);
  }

  std::array<TcpStack, 2> stacks_;
  std::multimap<Instant, Packet> arrivals_;
  std::array<Instant, 2> free_at_{};
  std::array<bool, 2> blocked_{};
  Instant now_;
};

Flow flow_of(FlowId id, std::uint64_t segments) {
  Flow flow;
  flow.id = id;
  flow.from = 0;
  flow.to = 1;
  flow.bytes = segments * 1460;
  return flow;
}

// Loses the first transmission of each of these segments.
Pipe::Treatment lose_once(std::set<std::uint32_t> sequences) {
  return [sequences](Packet& packet) mutable -> std::optional<base::Duration> {
    if (!packet.tcp.is_ack && sequences.erase(packet.tcp.sequence) > 0) {
      return std::nullopt;
    }
    return base::Duration();
  };
}

const scenario::TcpConfig kVariants[] = {
    {.kind = scenario::TcpKind::kNewReno, .selective_acks = true},
    {.kind = scenario::TcpKind::kNewReno, .selective_acks = false},
    {.kind = scenario::TcpKind::kDctcp, .selective_acks = true},
    {.kind = scenario::TcpKind::kDctcp, .segments_per_ack = 2},
};

TEST(TcpStack, LosslessTransferCompletesWithoutRetransmissions) {
  for (const scenario::TcpConfig& config : kVariants) {
    Pipe pipe(config);
    pipe.start(flow_of(7, 1000));
    pipe.run();
    ASSERT_EQ(pipe.ends.count(7), 1U);
    EXPECT_EQ(pipe.counters(0).segments_sent, 1000U);
    EXPECT_EQ(pipe.counters(0).timeouts, 0U);
    EXPECT_GE(pipe.ends[7], Instant(kSpacing * 999 + kDelay));
    EXPECT_LE(pipe.ends[7], Instant(kSpacing * 1100 + kDelay));  // slow start costs a little
  }
}

TEST(TcpStack, OneLossIsRepairedWithoutATimeout) {
  for (const scenario::TcpConfig& config : kVariants) {
    Pipe pipe(config);
    pipe.treatment = lose_once({100});
    pipe.start(flow_of(1, 500));
    pipe.run();
    ASSERT_EQ(pipe.ends.count(1), 1U);
    EXPECT_EQ(pipe.counters(0).retransmissions, 1U);
    EXPECT_EQ(pipe.counters(0).fast_recoveries, 1U);
    EXPECT_EQ(pipe.counters(0).timeouts, 0U);
  }
}

TEST(TcpStack, SeveralLossesOfOneWindowAreRepairedWithoutATimeout) {
  for (const scenario::TcpConfig& config : kVariants) {
    Pipe pipe(config);
    pipe.treatment = lose_once({100, 103, 104, 110});
    pipe.start(flow_of(1, 500));
    pipe.run();
    ASSERT_EQ(pipe.ends.count(1), 1U);
    EXPECT_EQ(pipe.counters(0).retransmissions, 4U);
    EXPECT_EQ(pipe.counters(0).fast_recoveries, 1U);
    EXPECT_EQ(pipe.counters(0).timeouts, 0U);
  }
}

TEST(TcpStack, LostTailCostsOneTimeout) {
  Pipe pipe({.rto_min = base::milliseconds(10)});
  pipe.treatment = lose_once({98, 99});
  pipe.start(flow_of(1, 100));
  pipe.run();
  ASSERT_EQ(pipe.ends.count(1), 1U);
  EXPECT_EQ(pipe.counters(0).timeouts, 1U);
  EXPECT_GE(pipe.ends[1], Instant(base::milliseconds(10)));
  EXPECT_LT(pipe.ends[1], Instant(base::milliseconds(11)));
}

TEST(TcpStack, TailLossProbeSavesTheTimeout) {
  Pipe pipe({.tail_loss_probe = true, .rto_min = base::milliseconds(10)});
  pipe.treatment = lose_once({97, 98, 99});
  pipe.start(flow_of(1, 100));
  pipe.run();
  ASSERT_EQ(pipe.ends.count(1), 1U);
  EXPECT_EQ(pipe.counters(0).timeouts, 0U);
  EXPECT_GE(pipe.counters(0).tail_probes, 1U);
  EXPECT_LT(pipe.ends[1], Instant(base::milliseconds(1)));
}

TEST(TcpStack, LossOfEverythingDoublesTheTimeoutEachTime) {
  Pipe pipe({.rto_min = base::milliseconds(10)});
  pipe.treatment = [&pipe](Packet&) -> std::optional<base::Duration> {
    if (pipe.now() < Instant(base::milliseconds(100))) {
      return std::nullopt;
    }
    return base::Duration();
  };
  pipe.start(flow_of(1, 10));
  pipe.run();
  ASSERT_EQ(pipe.ends.count(1), 1U);
  EXPECT_EQ(pipe.counters(0).timeouts, 4U);  // at 10, 30, 70 and 150 ms
  EXPECT_GE(pipe.ends[1], Instant(base::milliseconds(150)));
}

TEST(TcpStack, ReorderingBelowTheThresholdAndDuplicatesAreHarmless) {
  for (const scenario::TcpConfig& config : kVariants) {
    Pipe pipe(config);
    pipe.treatment = [](Packet& packet) {
      const bool late = !packet.tcp.is_ack && packet.tcp.sequence % 10 == 3;
      return std::optional(late ? kSpacing * 2 + base::nanoseconds(500) : base::Duration());
    };
    pipe.start(flow_of(1, 500));
    pipe.run();
    ASSERT_EQ(pipe.ends.count(1), 1U);
    EXPECT_EQ(pipe.counters(0).retransmissions, 0U);
    EXPECT_EQ(pipe.counters(0).timeouts, 0U);
  }
}

TEST(TcpStack, ReorderingAboveTheThresholdIsTakenForLoss) {
  Pipe pipe({});
  pipe.treatment = [](Packet& packet) {
    const bool late = !packet.tcp.is_ack && packet.tcp.sequence == 100;
    return std::optional(late ? kSpacing * 8 : base::Duration());
  };
  pipe.start(flow_of(1, 500));
  pipe.run();
  EXPECT_EQ(pipe.counters(0).retransmissions, 1U);
  EXPECT_EQ(pipe.ends.count(1), 1U);
}

TEST(TcpStack, LostAcknowledgementsCauseNoRetransmissions) {
  Pipe pipe({});
  std::uint32_t acks = 0;
  pipe.treatment = [&acks](Packet& packet) -> std::optional<base::Duration> {
    if (packet.tcp.is_ack && packet.tcp.acknowledged < 490 && ++acks % 3 == 0) {
      return std::nullopt;
    }
    return base::Duration();
  };
  pipe.start(flow_of(1, 500));
  pipe.run();
  ASSERT_EQ(pipe.ends.count(1), 1U);
  EXPECT_EQ(pipe.counters(0).retransmissions, 0U);
}

TEST(TcpStack, CorruptSegmentsCountAsLost) {
  Pipe pipe({});
  bool corrupted = false;
  pipe.treatment = [&corrupted](Packet& packet) {
    if (packet.tcp.sequence == 50 && !corrupted) {
      corrupted = packet.corrupt = true;
    }
    return std::optional(base::Duration());
  };
  pipe.start(flow_of(1, 200));
  pipe.run();
  EXPECT_EQ(pipe.counters(0).retransmissions, 1U);
  EXPECT_EQ(pipe.ends.count(1), 1U);
}

TEST(TcpStack, HeavyRandomLossIsSurvivedByEveryVariant) {
  for (const scenario::TcpConfig& config : kVariants) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      base::RandomSequence random(seed);
      Pipe pipe(config);
      pipe.treatment = [&random](Packet&) -> std::optional<base::Duration> {
        if (random.next_below(5) == 0) {
          return std::nullopt;
        }
        return base::Duration(static_cast<std::int64_t>(random.next_below(5000)));
      };
      pipe.start(flow_of(1, 300));
      pipe.start(flow_of(2, 5));
      pipe.run();
      EXPECT_EQ(pipe.ends.size(), 2U) << "seed " << seed;
    }
  }
}

TEST(TcpStack, FramesAreHeadersAndPayloadAndTheLastIsShorter) {
  Pipe pipe({});
  std::map<std::uint32_t, std::uint32_t> bytes;
  pipe.treatment = [&bytes](Packet& packet) {
    if (packet.tcp.is_ack) {
      EXPECT_EQ(packet.bytes, 64U);
    } else {
      bytes[packet.tcp.sequence] = packet.bytes;
    }
    return std::optional(base::Duration());
  };
  Flow flow = flow_of(1, 2);
  flow.bytes += 100;
  pipe.start(flow);
  pipe.run();
  EXPECT_EQ(bytes, (std::map<std::uint32_t, std::uint32_t>{{0, 1514}, {1, 1514}, {2, 154}}));
}

TEST(TcpStack, AllPacketsOfAFlowCarryOneLabelAndFlowsDiffer) {
  Pipe pipe({});
  std::map<std::uint32_t, std::set<std::uint32_t>> labels;
  pipe.treatment = [&labels](Packet& packet) {
    labels[packet.tcp.flow].insert(packet.label);
    return std::optional(base::Duration());
  };
  pipe.start(flow_of(1, 20));
  pipe.start(flow_of(2, 20));
  pipe.run();
  ASSERT_EQ(labels[1].size(), 1U);
  ASSERT_EQ(labels[2].size(), 1U);
  EXPECT_NE(*labels[1].begin(), *labels[2].begin());
}

TEST(TcpStack, OnlyDctcpIsEcnCapable) {
  for (const scenario::TcpKind kind : {scenario::TcpKind::kNewReno, scenario::TcpKind::kDctcp}) {
    Pipe pipe({.kind = kind});
    std::set<std::uint8_t> seen;
    pipe.treatment = [&seen](Packet& packet) {
      seen.insert(packet.ecn);
      return std::optional(base::Duration());
    };
    pipe.start(flow_of(1, 20));
    pipe.run();
    const std::uint8_t expected =
        kind == scenario::TcpKind::kDctcp ? SPILLWAY_ECN_ECT0 : SPILLWAY_ECN_NOT_ECT;
    EXPECT_EQ(seen, std::set<std::uint8_t>{expected});
  }
}

TEST(TcpStack, FlowsOfOneHostShareItsCard) {
  Pipe pipe({});
  pipe.start(flow_of(1, 1000));
  pipe.start(flow_of(2, 1000));
  pipe.run();
  EXPECT_LT(pipe.ends[2] - pipe.ends[1], base::microseconds(100));
  EXPECT_GT(pipe.ends[1], Instant(base::microseconds(1900)));
}

TEST(TcpStack, UrgentFlowGoesFirstWhenPrioritiesAreAskedFor) {
  Pipe pipe({.priority_by_flow = true});
  Flow urgent = flow_of(2, 1000);
  urgent.priority = 7;
  pipe.start(flow_of(1, 1000));
  pipe.start(urgent);
  pipe.run();
  EXPECT_LT(pipe.ends[2], Instant(base::microseconds(1200)));
  EXPECT_GT(pipe.ends[1], Instant(base::microseconds(1900)));
}

TEST(TcpReceiver, ChangeOfMarkIsAcknowledgedAtOnceWithTheOldMark) {
  TcpReceiver receiver({.segments_per_ack = 2}, 10);
  TcpSegment segment;
  EXPECT_EQ(receiver.on_segment(segment, false).count, 0U);
  segment.sequence = 1;
  const TcpReceiver::Acks acks = receiver.on_segment(segment, true);
  ASSERT_EQ(acks.count, 1U);
  EXPECT_EQ(acks.ack[0].acknowledged, 1U);
  EXPECT_FALSE(acks.ack[0].echo_mark);
  ASSERT_TRUE(receiver.has_held_ack());
  EXPECT_TRUE(receiver.release_held_ack().echo_mark);
}

TEST(TcpReceiver, AcknowledgesTheRunAroundTheSegmentThatCame) {
  TcpReceiver receiver({}, 100);
  TcpSegment segment;
  for (const std::uint32_t sequence : {10U, 12U, 11U}) {
    segment.sequence = sequence;
    const TcpReceiver::Acks acks = receiver.on_segment(segment, false);
    ASSERT_EQ(acks.count, 1U);
    EXPECT_EQ(acks.ack[0].acknowledged, 0U);
    if (sequence == 11) {
      EXPECT_EQ(acks.ack[0].sequence, 10U);
      EXPECT_EQ(acks.ack[0].selective, 12U);
    }
  }
}

}  // namespace
}  // namespace spillway::sim
