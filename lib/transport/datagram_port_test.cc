// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

#include "transport/datagram_port.h"
#include "transport/exchange_testing.h"

namespace spillway::transport {

namespace {

constexpr std::uint16_t kOwn = 0;
constexpr std::uint16_t kPeer = 1;
constexpr std::uint16_t kOther = 2;
constexpr std::size_t kLatest = 257;  // after so many packets one is of long ago
constexpr std::size_t kQuoted = 200;  // of a datagram; a host quotes more

using Bytes = std::vector<std::uint8_t>;

class ConstantPlanes final : public PayloadSource {
 public:
  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override {
    const Bytes planes(kTestPlanesBytes, static_cast<std::uint8_t>(stamp.packet));
    const std::uint16_t head_bytes = kTestPlanesBytes;  // beyond what is quoted
    return wire::write_data_packet(test_header(stamp, head_bytes), planes, auth, out);
  }
};

EndpointConfig own_config() {
  EndpointConfig config;
  config.job = 3;
  config.rank = kOwn;
  return config;
}

// One rank that has just sent something to a peer.
struct Fixture : testing::Test {
  Fixture() {
    EXPECT_TRUE(port.add_peer(kPeer, now).ok());
    EXPECT_TRUE(port.add_peer(kOther, now).ok());
    for (const std::uint16_t to : {kPeer, kOther}) {
      EXPECT_TRUE(port.endpoint()
                      .send({.id = {.operation = 1, .source = kOwn},
                             .to = to,
                             .packets = 10,
                             .packet_bytes = 1000,
                             .importance = SPILLWAY_IMPORTANCE_REQUIRED,  // so it is announced
                             .loss = {},
                             .source = &source},
                            now)
                      .ok());
    }
    while (send()) {
    }
  }

  // Sends the next datagram; false if there is none.
  bool send() {
    std::array<std::uint8_t, SPILLWAY_MAX_PACKET> room;
    Route route;
    const std::size_t size = port.poll_datagram(now, room, route);
    if (size == 0) {
      return false;
    }
    if (route.peer == kPeer) {
      (route.is_control ? control : data).emplace_back(room.begin(), room.begin() + size);
    }
    return true;
  }
  std::optional<PeerDead> death() {
    Event event;
    while (port.endpoint().poll_event(event)) {
      if (const auto* dead = std::get_if<PeerDead>(&event)) {
        return *dead;
      }
    }
    return std::nullopt;
  }
  void expect_ignored(std::uint16_t to, const Bytes& quoted) {
    EXPECT_FALSE(port.on_refused(to, quoted, now));
    EXPECT_FALSE(death().has_value());
  }
  void pass(base::Duration time) {
    now = now + time;
    port.endpoint().on_timeout(now);
    while (send()) {
    }
  }
  // Something that only the peer can write, as it answers questions.
  void hear(std::uint16_t from) {
    wire::ControlPacket sign;
    sign.type = wire::ControlType::kWait;
    sign.job = 3;
    sign.source = from;
    sign.destination = kOwn;
    sign.sequence = ++heard;
    port.endpoint().on_control(sign, now);
  }
  // The peer is asked at once, and is dead if it does not answer: long before silence alone would
  // tell.
  void expect_dead(const Bytes& quoted) {
    const std::size_t asked = control.size();
    EXPECT_TRUE(port.on_refused(kPeer, quoted, now));
    while (send()) {
    }
    EXPECT_GT(control.size(), asked);
    EXPECT_FALSE(death().has_value());
    const base::Instant said = now;
    std::optional<PeerDead> dead;
    while (!dead && now - said < EndpointConfig().exchange.peer_timeout / 2) {
      pass(base::milliseconds(10));
      dead = death();
    }
    ASSERT_TRUE(dead.has_value());
    EXPECT_GT(control.size(), asked + 3);
    EXPECT_EQ(dead->rank, kPeer);
    EXPECT_EQ(dead->cause, DeathCause::kRefused);
  }

  base::Instant now{base::seconds(5)};
  ConstantPlanes source;
  DatagramPort port{own_config(), SessionConfig()};
  std::uint64_t heard = 0;
  std::vector<Bytes> control;
  std::vector<Bytes> data;
};
using RefusedDatagram = Fixture;

TEST_F(RefusedDatagram, OfOursMeansThatThePeerIsGone) {
  ASSERT_FALSE(control.empty());
  expect_dead(control.back());
}

TEST_F(RefusedDatagram, OfDataIsEnoughInPart) {
  ASSERT_FALSE(data.empty());
  Bytes quoted = data.back();
  quoted.resize(kQuoted);
  expect_dead(quoted);
}

TEST_F(RefusedDatagram, MayStandBeforeOthersOfItsBuffer) {
  Bytes quoted = control.back();
  quoted.insert(quoted.end(), control.back().begin(), control.back().end());
  expect_dead(quoted);
}

TEST_F(RefusedDatagram, ThatWeDidNotWriteIsIgnored) {
  expect_ignored(kPeer, {});
  expect_ignored(kPeer, Bytes(100, 0));
  for (const std::vector<Bytes>* sent : {&control, &data}) {
    for (std::size_t at = 0; at < 60; ++at) {
      Bytes quoted = sent->back();
      quoted.resize(std::min(quoted.size(), kQuoted));
      quoted[at % quoted.size()] ^= 1;
      expect_ignored(kPeer, quoted);
    }
    for (std::size_t size = 0; size < 40; ++size) {
      expect_ignored(kPeer, Bytes(sent->back().begin(), sent->back().begin() + size));
    }
  }
}

TEST_F(RefusedDatagram, ToAnotherPeerSaysNothingAboutThisOne) {
  expect_ignored(kOther, control.back());
  expect_ignored(77, control.back());
}

TEST_F(RefusedDatagram, OfLongAgoIsIgnored) {
  const Bytes old_control = control.back();
  const Bytes old_data = data.back();
  const std::size_t before = control.size();
  // Questions go on without an answer.
  for (int i = 0; i < 3000 && control.size() < before + kLatest; ++i) {
    // The peers are still heard, over another way.
    hear(kPeer);
    hear(kOther);
    pass(base::milliseconds(20));
  }
  ASSERT_GE(control.size(), before + kLatest);
  expect_ignored(kPeer, old_control);
  now = std::max(now, base::Instant(base::seconds(7)));
  expect_ignored(kPeer, old_data);
  expect_dead(control.back());
}

// A listener can quote every packet that was just sent, and each question, too.
TEST_F(RefusedDatagram, DoesNotEndAPeerThatAnswers) {
  const base::Instant end = now + EndpointConfig().exchange.peer_timeout * 10;
  const base::Duration slow = EndpointConfig().exchange.peer_timeout / 5;
  base::Instant answered = now;
  while (now < end) {
    EXPECT_TRUE(port.on_refused(kPeer, control.back(), now));
    pass(base::milliseconds(1));
    if (now - answered >= slow) {
      hear(kPeer);
      hear(kOther);
      answered = now;
    }
    ASSERT_FALSE(death().has_value());
  }
  expect_dead(control.back());
}

TEST_F(RefusedDatagram, FromAPeerThatOwesNothingChangesNothing) {
  port.endpoint().withdraw({.operation = 1, .source = kOwn}, kPeer, now);
  EXPECT_TRUE(port.on_refused(kPeer, control.back(), now));
  EXPECT_FALSE(death().has_value());
}

}  // namespace

}  // namespace spillway::transport
