// SPDX-License-Identifier: Apache-2.0
//
// Sender and receiver over loopback, with every combination of offloads; and the pacer.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>

#include "base/clock.h"
#include "net/address.h"
#include "net/datagrams.h"
#include "net/driver_testing.h"
#include "net/sockets.h"
#include "wire/packet.h"

namespace spillway::net {

namespace {

constexpr std::uint16_t kPeer = 3;

UdpSocket open_socket(const std::string& address) {
  base::Result<UdpSocket> socket = UdpSocket::open(SocketAddress::parse(address).value());
  SPILLWAY_CHECK(socket.ok());
  return std::move(socket).value();
}

struct Received {
  std::vector<std::uint8_t> bytes;
  std::uint8_t tos = 0;
  base::Instant arrived;
};

struct Wire {
  Wire(const std::string& address, const Offloads& offloads, int sockets = 1)
      : target(open_socket(address)), offloads_(available_offloads(offloads)) {
    target.report_arrivals(offloads_.gro);
    std::vector<UdpSocket> sources;
    for (int i = 0; i < sockets; ++i) {
      sources.push_back(open_socket(address));
    }
    sender.emplace(std::move(sources), offloads_);
    sender->set_address(kPeer, target.local());
    receiver.emplace(target, offloads_);
  }

  void commit(std::size_t size, std::uint8_t fill, std::uint8_t tos = 0, std::uint8_t socket = 0) {
    const base::MutableByteView room = sender->room();
    std::fill_n(room.begin(), size, fill);
    sender->commit({.peer = kPeer,
                    .path = socket,
                    .dscp = static_cast<std::uint8_t>(tos >> 2),
                    .ecn = static_cast<std::uint8_t>(tos & 3)},
                   size);
  }

  // Waits for `count` datagrams, then also takes any further ones that have arrived.
  std::vector<Received> receive(std::size_t count) {
    std::vector<Received> all;
    pollfd readable{target.fd(), POLLIN, 0};
    while (all.size() < count ? harness::poll_patiently(readable, kTestPatience)
                              : ::poll(&readable, 1, 0) > 0) {
      receiver->receive(base::MonotonicClock().now(),
                        [&all](base::ByteView bytes, std::uint8_t tos, base::Instant arrived) {
                          all.push_back({{bytes.begin(), bytes.end()}, tos, arrived});
                        });
    }
    return all;
  }

  UdpSocket target;
  Offloads offloads_;
  std::optional<DatagramSender> sender;
  std::optional<DatagramReceiver> receiver;
};

class EveryOffload : public testing::TestWithParam<int> {
 protected:
  Offloads offloads() const {
    return {.gso = (GetParam() & 1) != 0,
            .gro = (GetParam() & 2) != 0,
            .batching = (GetParam() & 4) != 0};
  }
  std::string address() const { return (GetParam() & 8) != 0 ? "[::1]:0" : "127.0.0.1:0"; }
};

TEST_P(EveryOffload, DatagramsArriveAsTheyWereWritten) {
  Wire wire(address(), offloads());
  // Runs of one size, a shorter datagram that ends a run, a longer one that begins another.
  const std::vector<std::size_t> sizes{1452, 1452, 1452, 700, 1452, 9, 9, 2000, 1, 1452};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    wire.commit(sizes[i], static_cast<std::uint8_t>(i + 1), 0xB8);
  }
  ASSERT_TRUE(wire.sender->flush());
  const std::vector<Received> all = wire.receive(sizes.size());
  ASSERT_EQ(all.size(), sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(all[i].bytes, std::vector<std::uint8_t>(sizes[i], static_cast<std::uint8_t>(i + 1)));
    EXPECT_EQ(all[i].tos, 0xB8);
  }
  EXPECT_EQ(wire.sender->counters().datagrams, sizes.size());
  EXPECT_EQ(wire.receiver->counters().bytes,
            std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
}

TEST_P(EveryOffload, ClassAndSocketKeepToTheirDatagrams) {
  Wire wire(address(), offloads(), 2);
  for (int i = 0; i < 12; ++i) {
    const auto tos = static_cast<std::uint8_t>(i % 3 == 0 ? 0x02 : 0xC8);
    wire.commit(500, tos, tos, static_cast<std::uint8_t>(i % 2));
  }
  ASSERT_TRUE(wire.sender->flush());
  const std::vector<Received> all = wire.receive(12);
  ASSERT_EQ(all.size(), 12U);
  for (const Received& received : all) {
    EXPECT_EQ(received.bytes[0], received.tos);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryOffload, testing::Range(0, 16));

TEST(Datagrams, OfOneRunLeaveInOneCall) {
  Wire wire("127.0.0.1:0", {});
  if (!wire.offloads_.gso) {
    GTEST_SKIP() << "this kernel has no UDP_SEGMENT";
  }
  for (int i = 0; i < 40; ++i) {
    wire.commit(1000, 1);
  }
  ASSERT_TRUE(wire.sender->flush());
  EXPECT_EQ(wire.sender->counters().calls, 1U);
  EXPECT_EQ(wire.receive(40).size(), 40U);
  EXPECT_LT(wire.receiver->counters().calls, 10U);
}

// Batches large enough for the helper, and more than one call reads.
TEST_P(EveryOffload, HelpersChangeNothing) {
  Wire wire(address(), offloads());
  wire.sender->use_helper(HelperThread::make("send", "sends packets").value());
  wire.receiver->use_helper(HelperThread::make("read", "reads packets").value());
  wire.target.size_buffers(4 << 20);
  constexpr std::size_t kBytes = 1400;
  std::size_t committed = 0;
  std::size_t came = 0;
  base::MonotonicClock clock;
  const auto check = [&came](base::ByteView bytes, std::uint8_t, base::Instant) {
    EXPECT_EQ(std::vector<std::uint8_t>(bytes.begin(), bytes.end()),
              std::vector<std::uint8_t>(kBytes, static_cast<std::uint8_t>(came++ % 251)));
  };
  for (int flushes = 0; flushes < 5; ++flushes) {
    for (int i = 0; i < 60; ++i) {  // fits the smallest queue
      wire.commit(kBytes, static_cast<std::uint8_t>(committed++ % 251));
    }
    ASSERT_TRUE(wire.sender->flush());
    EXPECT_TRUE(wire.sender->empty());
    ASSERT_TRUE(wire.sender->take_back());
    EXPECT_EQ(wire.sender->counters().datagrams, committed);
    harness::Limit limit(kTestPatience);
    while (came < committed && !limit.is_over()) {
      wire.receiver->receive(clock.now(), check);
    }
    EXPECT_EQ(came, committed);
  }
  EXPECT_EQ(wire.receiver->counters().datagrams, committed);
}

// Writes the requested number of bytes, each with the requested value.
class NumberWriter final : public DatagramWriter {
 public:
  std::size_t write_data(const transport::Route&, const wire::DataStamp& stamp,
                         transport::PayloadSource&, base::MutableByteView out) const override {
    const std::size_t size = stamp.packet % 3 == 2 ? 900 : 1400;
    std::fill_n(out.begin(), size, static_cast<std::uint8_t>(stamp.number));
    return size;
  }
};

class NoSource final : public transport::PayloadSource {
 public:
  std::size_t write(const wire::DataStamp&, const wire::PacketAuth&,
                    base::MutableByteView) override {
    return 0;
  }
};

// Named datagrams between ones written at once, a few and many at a time.
TEST_P(EveryOffload, DatagramsThatAHelperWritesAreThoseThatWereNamed) {
  const NumberWriter writer;
  NoSource source;
  Wire wire(address(), offloads());
  wire.target.size_buffers(4 << 20);
  wire.sender->use_helper(HelperThread::make("send", "sends packets").value(), &writer);
  std::vector<std::size_t> sizes(256);
  std::uint8_t number = 0;
  std::uint8_t arrived = 0;
  for (const int count : {1, 3, 25, 40}) {
    wire.sender->let_help(count != 3);  // datagrams named before are written all the same
    for (int i = 0; i < count; ++i) {
      transport::Transmission named;
      named.route.peer = kPeer;
      named.data.number = ++number;
      named.data.packet = static_cast<std::uint16_t>(i);
      named.data_bytes = 1400;
      named.source = &source;
      ASSERT_TRUE(wire.sender->has_room());
      wire.sender->add(named);
      sizes[number] = i % 3 == 2 ? 900 : 1400;
      if (i % 10 == 4) {
        sizes[++number] = i % 20 == 4 ? 2000 : 100;
        wire.commit(sizes[number], number);
      }
    }
    ASSERT_TRUE(wire.sender->flush());
    wire.sender->wait_until_written();
    ASSERT_TRUE(wire.sender->take_back());
    for (const Received& received : wire.receive(number - arrived)) {
      ++arrived;
      EXPECT_EQ(received.bytes,
                std::vector<std::uint8_t>(sizes[received.bytes[0]], received.bytes[0]));
      sizes[received.bytes[0]] = 0;
    }
  }
  EXPECT_EQ(std::count(sizes.begin(), sizes.end(), 0U), 256);
}

TEST(Datagrams, AreStampedWithTheirArrival) {
  Wire wire("127.0.0.1:0", {});
  const base::MonotonicClock clock;
  // Tolerance: the clocks' offset is measured, and adjusted clocks drift a little.
  constexpr base::Duration kAbout = base::milliseconds(1);
  harness::Limit limit(kTestPatience);
  bool is_stamped = false;
  // The kernel starts stamping a moment after the first socket asks for it, and a busy one delivers
  // late. In both cases another datagram is sent.
  while (!is_stamped && !limit.is_over()) {
    const base::Instant before = clock.now();
    wire.commit(100, 1);
    ASSERT_TRUE(wire.sender->flush());
    const base::Instant sent = clock.now();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // read well after arrival
    const std::vector<Received> all = wire.receive(1);
    ASSERT_EQ(all.size(), 1U);
    is_stamped = all[0].arrived >= before - kAbout && all[0].arrived <= sent + kAbout;
  }
  EXPECT_TRUE(is_stamped);
}

TEST(Datagrams, ThatAFullQueueLostAreCounted) {
  Wire wire("127.0.0.1:0", {.gso = false, .gro = false});
  wire.target.size_buffers(4096);
  for (int round = 0; round < 8; ++round) {
    for (int i = 0; i < 40; ++i) {
      wire.commit(1000, 1);
    }
    ASSERT_TRUE(wire.sender->flush());
  }
  std::size_t arrived = wire.receive(1).size();
  EXPECT_LT(arrived, 320U);
  // The count arrives with the next datagram, which a queue that is still full may drop as well.
  harness::Limit limit(kTestPatience);
  std::size_t sent = 320;
  do {
    wire.commit(1000, 2);
    ASSERT_TRUE(wire.sender->flush());
    ++sent;
    arrived += wire.receive(1).size();
  } while (arrived + wire.receiver->counters().overflowed < sent && !limit.is_over());
  EXPECT_EQ(arrived + wire.receiver->counters().overflowed, sent);
  EXPECT_GT(wire.receiver->counters().overflowed, 0U);
}

TEST(Datagrams, ThatCannotBeSentAreCounted) {
  DatagramSender sender(
      [] {
        std::vector<UdpSocket> sockets;
        sockets.push_back(open_socket("127.0.0.1:0"));
        return sockets;
      }(),
      {});
  const SocketAddress nowhere = SocketAddress::parse("[::1]:9").value();  // another address family
  sender.set_address(kPeer, nowhere);
  sender.room();
  sender.commit({.peer = kPeer}, 100);
  EXPECT_TRUE(sender.flush());
  EXPECT_EQ(sender.counters().refused + sender.counters().too_long, 1U);
  EXPECT_EQ(sender.counters().datagrams, 0U);
}

// An error about an earlier datagram must not drop a later one.
TEST(Datagrams, AreSentDespiteErrorsOfOthers) {
  for (const bool batching : {false, true}) {
    Wire wire("127.0.0.1:0", {.gso = false, .gro = false, .batching = batching});
    std::vector<UdpSocket> sources;
    sources.push_back(open_socket("127.0.0.1:0"));
    sources[0].report_errors();
    DatagramSender sender(std::move(sources), {.gso = false, .gro = false, .batching = batching});
    const SocketAddress gone = open_socket("127.0.0.1:0").local();  // closed again
    sender.set_address(kPeer, wire.target.local());
    sender.set_address(kPeer + 1, gone);
    for (int i = 0; i < 20; ++i) {
      for (const std::uint16_t peer : {kPeer + 1, kPeer + 0}) {
        std::fill_n(sender.room().begin(), 100, std::uint8_t{1});
        sender.commit({.peer = peer}, 100);
        ASSERT_TRUE(sender.flush());
      }
    }
    EXPECT_EQ(sender.counters().refused, 0U);
    EXPECT_EQ(wire.receive(20).size(), 20U);
  }
}

TEST(ErrorQueue, TellsWhatWasRefusedAndQuotesIt) {
  for (const char* address : {"127.0.0.1:0", "[::1]:0"}) {
    UdpSocket socket = open_socket(address);
    socket.report_errors();
    const SocketAddress gone = open_socket(address).local();
    const std::vector<std::uint8_t> bytes(300, 0x5A);
    ::sendto(socket.fd(), bytes.data(), bytes.size(), 0, gone.data(), gone.size());
    pollfd failed{socket.fd(), 0, 0};
    ASSERT_TRUE(harness::poll_patiently(failed, kTestPatience)) << address;
    int told = 0;
    read_errors(socket, [&](const SocketError& error) {
      ++told;
      EXPECT_EQ(error.error, ECONNREFUSED);
      EXPECT_TRUE(error.from_network);
      EXPECT_EQ(error.to, gone);
      EXPECT_TRUE(std::equal(error.quoted.begin(), error.quoted.end(), bytes.begin(), bytes.end()));
    });
    EXPECT_EQ(told, 1) << address;
    EXPECT_EQ(::poll(&failed, 1, 0), 0) << address;  // none left
  }
}

TEST(KnownSources, GoByTheHostAlone) {
  const auto at = [](const char* text) { return SocketAddress::parse(text).value(); };
  KnownSources sources;
  sources.add(at("10.0.0.1:7000"));
  sources.add(at("[fd00::1]:7000"));
  EXPECT_TRUE(sources.has(at("10.0.0.1:9").data()));
  EXPECT_TRUE(sources.has(at("[fd00::1]:9").data()));
  EXPECT_FALSE(sources.has(at("10.0.0.2:7000").data()));
  EXPECT_FALSE(sources.has(at("[fd00::2]:7000").data()));
  sources.add(at("0.0.0.0:7000"));
  EXPECT_TRUE(sources.has(at("10.0.0.2:7000").data()));
}

TEST(UdpSocket, SaysWhichAddressIsTaken) {
  const UdpSocket first = open_socket("127.0.0.1:0");
  const base::Result<UdpSocket> second = UdpSocket::open(first.local());
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(first.local().to_string()), std::string::npos);
  EXPECT_NE(second.status().message().find("choose another"), std::string::npos);
}

TEST(PathMtu, OfLoopbackIsLongerThanAnyPacket) {
  const SocketAddress loopback = SocketAddress::parse("127.0.0.1:9").value();
  const base::Result<unsigned> mtu = path_mtu(loopback, loopback);
  ASSERT_TRUE(mtu.ok());
  EXPECT_GE(*mtu, 16'000U);
  EXPECT_EQ(datagram_limit(*mtu, loopback).value(), unsigned{SPILLWAY_MAX_PACKET});
}

TEST(PathMtu, LeavesRoomForHeaders) {
  const SocketAddress v4 = SocketAddress::parse("10.0.0.1:9").value();
  const SocketAddress v6 = SocketAddress::parse("[fd00::1]:9").value();
  EXPECT_EQ(datagram_limit(1500, v4).value(), 1472U);
  EXPECT_EQ(datagram_limit(1500, v6).value(), 1452U);
  EXPECT_EQ(datagram_limit(9000, v4).value(), 8972U);
  const base::Result<unsigned> tiny = datagram_limit(60, v4);
  ASSERT_FALSE(tiny.ok());
  EXPECT_NE(tiny.status().message().find("MTU"), std::string::npos);
}

TEST(UdpSocket, OneThatOnlySendsKeepsNothingThatComes) {
  UdpSocket deaf = UdpSocket::open(SocketAddress::parse("127.0.0.1:0").value()).value();
  const UdpSocket speaker = UdpSocket::open(SocketAddress::parse("127.0.0.1:0").value()).value();
  deaf.drop_arrivals();
  const char word = 'x';
  const SocketAddress& to = deaf.local();
  ASSERT_EQ(::sendto(speaker.fd(), &word, 1, 0, to.data(), to.size()), 1);
  char heard = 0;
  EXPECT_EQ(::recv(deaf.fd(), &heard, 1, MSG_DONTWAIT), -1);
  const SocketAddress& back = speaker.local();
  ASSERT_EQ(::sendto(deaf.fd(), &word, 1, 0, back.data(), back.size()), 1);
  EXPECT_EQ(::recv(speaker.fd(), &heard, 1, 0), 1);
}

// ------------------------------------------------------------------ pacing

constexpr base::Instant at(std::int64_t microseconds) {
  return base::Instant(base::microseconds(microseconds));
}

TEST(SendPacer, WithoutARateNeverHolds) {
  SendPacer pacer(base::BitRate(), base::bytes(1000));
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(pacer.may_send(at(0)));
    pacer.sent(base::bytes(1'000'000), at(0));
  }
}

TEST(SendPacer, KeepsTheRateOverTime) {
  SendPacer pacer(base::gigabits_per_second(1), base::bytes(4500));
  std::int64_t bytes = 0;
  for (std::int64_t now = 0; now < 10'000; ++now) {
    while (pacer.may_send(at(now))) {
      pacer.sent(base::bytes(1500), at(now));
      bytes += 1500;
    }
  }
  // 10 ms at 1 Gb/s, plus at most a burst, half a burst of debt and one more packet.
  EXPECT_GE(bytes, 1'250'000);
  EXPECT_LE(bytes, 1'250'000 + 4500 + 2250 + 1500);
}

TEST(SendPacer, SavesNoMoreThanABurst) {
  SendPacer pacer(base::gigabits_per_second(1), base::bytes(3000));
  pacer.sent(base::bytes(1500), at(0));
  std::int64_t bytes = 0;
  while (pacer.may_send(at(1'000'000))) {
    pacer.sent(base::bytes(1500), at(1'000'000));
    bytes += 1500;
  }
  EXPECT_EQ(bytes, 6000);  // the burst, half of one as debt, and the rest of the last packet
}

TEST(SendPacer, SendsInTurnsOfHalfABurst) {
  SendPacer pacer(base::gigabits_per_second(1), base::bytes(24'000));
  int turns = 0;
  int packets = 0;
  bool was_sending = false;
  for (std::int64_t now = 1000; now < 11'000; ++now) {
    const bool is_sending = pacer.may_send(at(now));
    turns += is_sending && !was_sending ? 1 : 0;
    was_sending = is_sending;
    while (pacer.may_send(at(now))) {
      pacer.sent(base::bytes(1500), at(now));
      ++packets;
    }
  }
  EXPECT_GE(packets / turns, 8);
}

TEST(SendPacer, SaysWhenItMaySendAgain) {
  SendPacer pacer(base::gigabits_per_second(1), base::Bytes());
  pacer.sent(base::bytes(12'500), at(50));
  EXPECT_FALSE(pacer.may_send(at(149)));
  EXPECT_EQ(pacer.next(), at(150));
  EXPECT_TRUE(pacer.may_send(pacer.next()));
}

}  // namespace

}  // namespace spillway::net
