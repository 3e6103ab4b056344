// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
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

// ------------------------------------------------------------------ packets of bytes

constexpr std::uint32_t kBytePackets = 4;
constexpr std::uint16_t kBytesEach = 1000;

wire::MessageId called(std::uint64_t signature) {
  return {.operation = 1, .signature = signature, .source = kOwn};
}

class ConstantBytes final : public PayloadSource {
 public:
  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override {
    wire::DataHeader header;
    header.stamp = stamp;
    header.codec = wire::Codec::kBytes;
    header.byte_count = stamp.packet == 0 ? kBytesEach - 8 : kBytesEach;
    return wire::write_data_packet(header, Bytes(header.byte_count, 7), auth, out);
  }
};

class WholeBytes final : public PayloadSink {
 public:
  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override {
    Bytes decrypted(packet.header.payload_bytes());
    return wire::trusted_bytes(bytes, packet, decrypted).empty() ? 1 : SPILLWAY_MAX_PLANES;
  }
};

// A message of bytes from one port, whose packets a test hands to the other.
struct BytesFixture : testing::Test {
  BytesFixture() {
    EXPECT_TRUE(sender.add_peer(kPeer, now).ok());
    EXPECT_TRUE(receiver.add_peer(kOwn, now).ok());
    EXPECT_TRUE(sender.endpoint()
                    .send({.id = called(5),
                           .to = kPeer,
                           .packets = kBytePackets,
                           .packet_bytes = kBytesEach + spillway_bytes_overhead(1),
                           .loss = {.loss_bound_ppm = 0, .min_planes = SPILLWAY_MAX_PLANES},
                           .source = &source},
                          now)
                    .ok());
    std::array<std::uint8_t, SPILLWAY_MAX_PACKET> room;
    Route route;
    while (const std::size_t size = sender.poll_datagram(now, room, route)) {
      if (!route.is_control) {
        packets.emplace_back(room.begin(), room.begin() + size);
      }
    }
    EXPECT_EQ(packets.size(), kBytePackets);
    std::ranges::sort(packets, {}, [](const Bytes& packet) {
      return packet.at(offsetof(spillway_packet_header, packet));
    });
  }

  static EndpointConfig peer_config() {
    EndpointConfig config = own_config();
    config.rank = kPeer;
    config.limits.early_bytes = 1 << 20;
    config.reports_unexpected = true;
    return config;
  }
  void expect(std::uint64_t signature) {
    EXPECT_TRUE(receiver.endpoint()
                    .expect({.id = called(signature),
                             .packets = kBytePackets,
                             .packet_bytes = kBytesEach + spillway_bytes_overhead(1),
                             .planes = SPILLWAY_MAX_PLANES,
                             .loss = {.loss_bound_ppm = 0, .min_planes = SPILLWAY_MAX_PLANES},
                             .sink = &sink},
                            now)
                    .ok());
  }
  void deliver(std::size_t packet) { receiver.on_datagram(packets[packet], false, now); }
  template <typename Kind>
  std::optional<Kind> next_event() {
    Event event;
    while (receiver.endpoint().poll_event(event)) {
      if (const auto* found = std::get_if<Kind>(&event)) {
        return *found;
      }
    }
    return std::nullopt;
  }

  base::Instant now{base::seconds(5)};
  ConstantBytes source;
  WholeBytes sink;
  DatagramPort sender{own_config(), SessionConfig()};
  DatagramPort receiver{peer_config(), SessionConfig()};
  std::vector<Bytes> packets;
};
using PacketsOfBytes = BytesFixture;

TEST_F(PacketsOfBytes, FindTheMessageThatTheirPlaceNames) {
  expect(5);
  for (std::size_t packet = kBytePackets; packet-- > 0;) {
    deliver(packet);
  }
  const auto report = next_event<ReceiveReport>();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->id, called(5));
  EXPECT_EQ(report->whole, kBytePackets);
}

TEST_F(PacketsOfBytes, ThatCameEarlyWaitForTheirMessage) {
  for (std::size_t packet = kBytePackets; packet-- > 1;) {
    deliver(packet);
  }
  EXPECT_FALSE(next_event<UnexpectedMessage>().has_value());  // nobody knows of which call yet
  deliver(0);
  const auto unexpected = next_event<UnexpectedMessage>();
  ASSERT_TRUE(unexpected.has_value());
  EXPECT_EQ(unexpected->id, called(5));
  expect(5);
  const auto report = next_event<ReceiveReport>();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->whole, kBytePackets);
}

TEST_F(PacketsOfBytes, OfAnotherCallNeverCompleteAMessage) {
  for (const bool is_early : {false, true}) {
    BytesFixture::receiver = DatagramPort(peer_config(), SessionConfig());
    ASSERT_TRUE(receiver.add_peer(kOwn, now).ok());
    if (!is_early) {
      expect(6);
    }
    for (std::size_t packet = kBytePackets; packet-- > 0;) {
      deliver(packet);
    }
    const auto unexpected = next_event<UnexpectedMessage>();
    ASSERT_TRUE(unexpected.has_value());
    EXPECT_EQ(unexpected->id, called(5));
    if (is_early) {
      expect(6);
    }
    EXPECT_FALSE(next_event<ReceiveReport>().has_value());
  }
}

TEST_F(PacketsOfBytes, CutOnTheWayCountAsTrimmed) {
  expect(5);
  packets[1].resize(100);
  deliver(1);
  EXPECT_EQ(receiver.endpoint().counters().trimmed, 1U);
  EXPECT_EQ(receiver.endpoint().counters().too_few_planes, 1U);
}

// A host that refuses a datagram quotes its beginning.
TEST_F(PacketsOfBytes, AreKnownByTheirBeginning) {
  for (Bytes& quoted : packets) {
    quoted.resize(kQuoted);
    EXPECT_TRUE(sender.on_refused(kPeer, quoted, now));
    quoted[kQuoted / 2] ^= 1;
    EXPECT_FALSE(sender.on_refused(kPeer, quoted, now));
  }
}

}  // namespace

}  // namespace spillway::transport
