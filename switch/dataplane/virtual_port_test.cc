// SPDX-License-Identifier: Apache-2.0
#include "switch/dataplane/virtual_port.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/random.h"
#include "switch/dataplane/port_config.h"
#include "switch/dataplane/station.h"

namespace spillway::dataplane {
namespace {

constexpr spillway_link kByteANanosecond = {.rate = 1U << SPILLWAY_RATE_SHIFT, .lost_of_2_32 = 0};

class VirtualPort : public testing::Test {
 protected:
  VirtualPort() : config_(default_port_config(SPILLWAY_PORT_SPILLWAY)) {
    config_.early_drop_bytes = 0;
    config_.ecn_bytes = 0;
  }

  spillway_decision offer(std::uint8_t dscp, std::uint32_t bytes, std::uint64_t now) {
    const spillway_frame frame = {bytes, dscp, SPILLWAY_ECN_NOT_ECT, 7, SPILLWAY_FRAME_TRIMMABLE};
    spillway_decision decision = {};
    spillway_pass_port(&config_, &link_, &port_, &frame, now, 0, &decision);
    return decision;
  }
  void drain(std::uint64_t now) { spillway_drain(&config_, &link_, &port_, now); }
  std::uint32_t queued(unsigned queue) const { return port_.state.bytes[queue]; }

  spillway_port_config config_;
  spillway_link link_ = kByteANanosecond;
  spillway_virtual_port port_ = {};
};

TEST_F(VirtualPort, ServesAByteOfFrameAndOverheadAtATime) {
  offer(1, 1000, 5000);
  EXPECT_EQ(queued(0), 1000U);
  drain(5000 + SPILLWAY_WIRE_OVERHEAD);
  EXPECT_EQ(queued(0), 1000U);
  drain(5000 + SPILLWAY_WIRE_OVERHEAD + 400);
  EXPECT_EQ(queued(0), 600U);
  drain(5000 + SPILLWAY_WIRE_OVERHEAD + 1000);
  EXPECT_EQ(queued(0), 0U);
  EXPECT_EQ(port_.state.occupied, 0U);
}

TEST_F(VirtualPort, SavesNothingUpWhileIdle) {
  drain(1'000'000'000);
  offer(1, 1000, 1'000'000'000);
  EXPECT_EQ(queued(0), 1000U);
  drain(1'000'000'000 + SPILLWAY_WIRE_OVERHEAD + 10);
  EXPECT_EQ(queued(0), 990U);
}

TEST_F(VirtualPort, TimeThatGoesBackChangesNothing) {
  offer(1, 1000, 5000);
  drain(4000);
  EXPECT_EQ(queued(0), 1000U);
  EXPECT_EQ(port_.drained_ns, 5000U);
}

TEST_F(VirtualPort, ServesUrgentDataFirst) {
  offer(1, 1000, 1);   // priority 0
  offer(41, 1000, 1);  // priority 7
  drain(1 + 2 * SPILLWAY_WIRE_OVERHEAD + 700);
  EXPECT_EQ(queued(7), 300U);
  EXPECT_EQ(queued(0), 1000U);
  drain(1 + 2 * SPILLWAY_WIRE_OVERHEAD + 1500);
  EXPECT_EQ(queued(7), 0U);
  EXPECT_EQ(queued(0), 500U);
}

TEST_F(VirtualPort, ControlHasItsShareWhileDataWaits) {
  config_.control_share_percent = 25;
  port_.state.bytes[0] = 10'000;
  port_.state.bytes[SPILLWAY_CONTROL_QUEUE] = 10'000;
  port_.state.occupied = 1U | SPILLWAY_CONTROL_WAITS;
  drain(4000);
  EXPECT_EQ(queued(SPILLWAY_CONTROL_QUEUE), 9000U);
  EXPECT_EQ(queued(0), 7000U);
  port_.state.bytes[0] = 500;
  drain(8000);  // 1000 for control, 500 for data, and the rest for control again
  EXPECT_EQ(queued(0), 0U);
  EXPECT_EQ(queued(SPILLWAY_CONTROL_QUEUE), 5500U);
}

TEST_F(VirtualPort, KeepsFractionsOfBytes) {
  link_.rate = (1U << SPILLWAY_RATE_SHIFT) / 8;  // 1 Gb/s
  port_.state.bytes[0] = 1000;
  port_.state.occupied = 1;
  port_.drained_ns = 100;
  for (std::uint64_t now = 101; now <= 100 + 800; ++now) {
    drain(now);
  }
  EXPECT_EQ(queued(0), 900U);
}

TEST_F(VirtualPort, FastLinksAndLongPausesDoNotOverflow) {
  link_.rate = 0xFFFFFFFF;
  for (unsigned queue = 0; queue < SPILLWAY_QUEUES; ++queue) {
    port_.state.bytes[queue] = SPILLWAY_MAX_QUEUE_BYTES;
    port_.state.occupied |= 1U << queue;
  }
  port_.overhead = 0xFFFFFF00;
  drain(~0ULL);
  drain(~0ULL);
  EXPECT_EQ(port_.overhead, 0U);
}

TEST_F(VirtualPort, AdmitsNoMoreThanQueueAndLinkHold) {
  base::RandomSequence random(7);
  std::uint64_t now = 1;
  std::uint64_t admitted = 0;
  for (int i = 0; i < 20'000; ++i) {
    now += random.next_below(1000);  // about three times what the link carries
    const spillway_decision decision = offer(1, 1500, now);
    if (decision.reason == SPILLWAY_REASON_ADMITTED) {
      admitted += 1500 + SPILLWAY_WIRE_OVERHEAD;
    } else {
      ASSERT_EQ(decision.reason, SPILLWAY_REASON_TRIMMED);
      admitted += config_.trim_bytes + SPILLWAY_WIRE_OVERHEAD;
    }
  }
  const std::uint64_t room = now + 2 * config_.queue_bytes + 200'000;
  EXPECT_LE(admitted, room);
  EXPECT_GE(admitted, now * 95 / 100);  // and the link was not left idle
}

// While a queue stays below the calm level, every frame passes unchanged.
TEST_F(VirtualPort, CalmQueuesTakeEveryFrameAsItIs) {
  base::RandomSequence random(3);
  for (int i = 0; i < 20'000; ++i) {
    config_ = default_port_config(static_cast<spillway_port_mode>(random.next_below(4)));
    config_.queue_bytes = 2000 + static_cast<std::uint32_t>(random.next_below(30'000));
    config_.ecn_bytes = static_cast<std::uint32_t>(random.next_below(config_.queue_bytes));
    config_.early_drop_bytes = static_cast<std::uint32_t>(random.next_below(config_.queue_bytes));
    ASSERT_TRUE(validate(config_).ok());
    const std::uint32_t calm = spillway_calm_bytes(&config_);
    const auto bytes = static_cast<std::uint32_t>(60 + random.next_below(1500));
    const auto flags = static_cast<std::uint8_t>(random.next_below(3));
    const spillway_frame frame = {bytes, static_cast<std::uint8_t>(random.next_below(64)),
                                  static_cast<std::uint8_t>(random.next_below(4)),
                                  static_cast<std::uint8_t>(random.next_below(8)), flags};
    if (bytes >= calm) {
      continue;
    }
    port_ = {};
    const std::uint8_t home = spillway_queue_of(&config_, &frame);
    port_.state.bytes[home] = static_cast<std::uint32_t>(random.next_below(calm - bytes));
    spillway_decision decision = {};
    spillway_pass_port(&config_, &link_, &port_, &frame, 0,
                       static_cast<std::uint32_t>(random.next_word()), &decision);
    ASSERT_EQ(decision.reason, SPILLWAY_REASON_ADMITTED);
    ASSERT_EQ(decision.bytes, bytes);
  }
}

TEST_F(VirtualPort, FramesToldOfLaterCountLikeThoseItWasAskedAbout) {
  const spillway_frame frame = {1000, 9, 0, 7, SPILLWAY_FRAME_TRIMMABLE};
  spillway_virtual_port asked = {};
  spillway_decision decision = {};
  for (int i = 0; i < 3; ++i) {
    spillway_pass_port(&config_, &link_, &asked, &frame, 0, 0, &decision);
  }
  spillway_virtual_port told = {};
  spillway_tell_port(&told, decision.queue, 3 * frame.bytes, 3);
  EXPECT_EQ(std::memcmp(&told, &asked, sizeof(told)), 0);
  spillway_tell_port(&told, decision.queue, 0, 0);
  spillway_tell_port(&told, SPILLWAY_QUEUES, 5, 1);  // there is no such queue
  EXPECT_EQ(std::memcmp(&told, &asked, sizeof(told)), 0);
}

// ------------------------------------------------------------------ stations

using Frame = std::vector<std::uint8_t>;

constexpr spillway_tag kNone = {};

// A frame from address 7 to address 9, with these bytes after the addresses.
Frame frame_with(std::initializer_list<std::uint8_t> behind) {
  Frame frame = {2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 7};
  frame.insert(frame.end(), behind);
  return frame;
}

std::uint16_t vlan_of(const Frame& frame, const spillway_tag& beside = kNone) {
  spillway_station receiver = {};
  spillway_station sender = {};
  const std::uint8_t* end = frame.data() + frame.size();
  EXPECT_TRUE(spillway_read_receiver(frame.data(), end, &beside, &receiver));
  EXPECT_TRUE(spillway_read_sender(frame.data(), end, &beside, &sender));
  EXPECT_EQ(receiver.address[5], 9);
  EXPECT_EQ(sender.address[5], 7);
  EXPECT_EQ(receiver.vlan, sender.vlan);
  return receiver.vlan;
}

TEST(Station, IsAnAddressInTheOutermostVlan) {
  EXPECT_EQ(vlan_of(frame_with({8, 0, 0x45})), 0);
  EXPECT_EQ(vlan_of(frame_with({0x81, 0, 0xE1, 0x23, 8, 0})), 0x123);
  EXPECT_EQ(vlan_of(frame_with({0x88, 0xA8, 0xE1, 0x23, 8, 0})), SPILLWAY_STATION_SERVICE | 0x123);
  EXPECT_EQ(vlan_of(frame_with({0x88, 0xA8, 0, 5, 0x81, 0, 0, 6, 8, 0})),
            SPILLWAY_STATION_SERVICE | 5);
}

TEST(Station, ATagBesideTheFrameIsItsOutermost) {
  const Frame frame = frame_with({0x81, 0, 0, 6, 8, 0});
  EXPECT_EQ(vlan_of(frame, {SPILLWAY_ETHERTYPE_VLAN, 0xE005}), 5);
  EXPECT_EQ(vlan_of(frame, {SPILLWAY_ETHERTYPE_SERVICE_VLAN, 5}), SPILLWAY_STATION_SERVICE | 5);
}

TEST(Station, APriorityAloneIsNoVlan) {
  EXPECT_EQ(vlan_of(frame_with({0x81, 0, 0xE0, 0, 8, 0})), 0);
  EXPECT_EQ(vlan_of(frame_with({0x88, 0xA8, 0xE0, 0, 8, 0})), 0);
}

TEST(Station, ATagThatIsNotWholeIsNone) {
  EXPECT_EQ(vlan_of(frame_with({0x81, 0})), 0);
  EXPECT_EQ(vlan_of(frame_with({0x81, 0, 0, 5, 8})), 0);
}

TEST(Station, GroupsNeitherSendNorAreOneReceiver) {
  Frame frame = frame_with({8, 0});
  spillway_station station = {};
  const auto reads = [&station, &frame](auto read) {
    return read(frame.data(), frame.data() + frame.size(), &kNone, &station) != 0;
  };
  frame[0] = 0xFF;
  EXPECT_FALSE(reads(spillway_read_receiver));
  EXPECT_TRUE(reads(spillway_read_sender));
  frame[6] = 0x33;
  EXPECT_FALSE(reads(spillway_read_sender));
  frame.resize(13);
  frame[0] = frame[6] = 2;
  EXPECT_FALSE(reads(spillway_read_receiver));
  EXPECT_FALSE(reads(spillway_read_sender));
}

TEST(Station, NoFrameGoesBack) {
  EXPECT_TRUE(spillway_returns(3, 3));
  EXPECT_FALSE(spillway_returns(3, 4));
}

}  // namespace

}  // namespace spillway::dataplane
