// SPDX-License-Identifier: Apache-2.0
//
// Drivers whose packets travel over TCP, by choice or because UDP does not reach the peer.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "net/driver_testing.h"
#include "net/stream_carrier.h"
#include "net/stream_connection.h"

namespace spillway::net {
namespace {

DriverConfig stream_config(std::uint16_t rank, Carrier carrier = Carrier::kTcp) {
  DriverConfig config = config_of(rank, "127.0.0.1:0");
  config.carrier = carrier;
  return config;
}

struct Pair : Two {
  explicit Pair(Carrier carrier = Carrier::kTcp)
      : Two(stream_config(0, carrier), stream_config(1, carrier)) {}
};

// Ranks that all know each other.
struct Several {
  explicit Several(std::uint16_t count, const std::function<void(DriverConfig&)>& change = {}) {
    for (std::uint16_t rank = 0; rank < count; ++rank) {
      DriverConfig config = stream_config(rank);
      if (change) {
        change(config);
      }
      ranks.push_back(std::make_unique<Rank>(rank, config));
    }
    for (const auto& one : ranks) {
      for (const auto& other : ranks) {
        if (one != other) {
          EXPECT_TRUE(one->driver->add_peer(other->rank, other->driver->local()).ok());
        }
      }
    }
    for (const auto& rank : ranks) {
      EXPECT_TRUE(rank->driver->start().ok());
    }
  }
  Rank& operator[](std::size_t rank) { return *ranks[rank]; }

  std::vector<std::unique_ptr<Rank>> ranks;
};

UniqueFd connect_to(const SocketAddress& address, const char* from = "127.0.0.1:0") {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress local = SocketAddress::parse(from).value();
  EXPECT_EQ(::bind(fd.get(), local.data(), local.size()), 0);
  EXPECT_EQ(::connect(fd.get(), address.data(), address.size()), 0);
  return fd;
}

void send_all(const UniqueFd& fd, base::ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      return;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

// Reads until the other side closes; returns what it sent.
std::vector<std::uint8_t> read_to_end(const UniqueFd& fd) {
  std::vector<std::uint8_t> all;
  std::array<std::uint8_t, 4096> bytes;
  for (;;) {
    const ssize_t got = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) {
      return all;
    }
    all.insert(all.end(), bytes.begin(), bytes.begin() + got);
  }
}

TEST(StreamDriver, CarriesAMessage) {
  Pair ranks;
  expect_transfer(ranks, 20'000);
  const DriverCounters counters = counters_of(*ranks.zero.driver);
  EXPECT_EQ(counters.endpoint.data_sent, 20'000U);
  EXPECT_EQ(counters.endpoint.data_resent, 0U);
  EXPECT_EQ(counters.sent.datagrams, counters.streams.packets_sent);  // none by UDP
  EXPECT_LT(counters.streams.send_calls, counters.streams.packets_sent / 10);
}

TEST(StreamDriver, CarriesAMessageOverIpv6) {
  DriverConfig a = stream_config(0);
  DriverConfig b = stream_config(1);
  a.listen = b.listen = SocketAddress::parse("[::1]:0").value();
  Two ranks(a, b);
  expect_transfer(ranks, 1000);
  EXPECT_GE(counters_of(*ranks.zero.driver).streams.packets_sent, 1000U);
}

TEST(StreamDriver, ThreeRanksSendToEachOtherAllAtOnce) {
  Several ranks(3);
  constexpr std::uint32_t kMessages = 10;
  for (std::uint32_t operation = 0; operation < kMessages; ++operation) {
    for (const auto& from : ranks.ranks) {
      for (const auto& to : ranks.ranks) {
        if (from != to) {
          to->expect(from->rank, 700 + operation, operation);
          from->send(to->rank, 700 + operation, operation);
        }
      }
    }
  }
  for (const auto& rank : ranks.ranks) {
    EXPECT_TRUE(rank->events.wait_for_count(4 * kMessages));
    EXPECT_EQ(rank->sink.wrong(), 0U);
  }
}

// A stream loses nothing, so packets arrive even if the message tolerates loss.
TEST(StreamDriver, TolerantMessagesArriveWhole) {
  Pair ranks;
  ranks.one.driver->post([&](transport::Endpoint& endpoint, base::Instant now) {
    EXPECT_TRUE(endpoint
                    .expect({.id = {.source = 0},
                             .packets = 5000,
                             .packet_bytes = kTestPacketBytes,
                             .planes = transport::kTestPlanes,
                             .loss = {.loss_bound_ppm = 500'000},
                             .sink = &ranks.one.sink},
                            now)
                    .ok());
  });
  ranks.zero.send(1, 5000);
  const auto report = ranks.one.events.wait_for<transport::ReceiveReport>();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->whole, 5000U);
}

TEST(StreamDriver, ABrokenConnectionMeansThatThePeerEnded) {
  for (const bool survivor_is_lower : {true, false}) {
    Pair ranks;
    expect_transfer(ranks, 10);
    Rank& survivor = survivor_is_lower ? ranks.zero : ranks.one;
    Rank& dies = survivor_is_lower ? ranks.one : ranks.zero;
    survivor.expect(dies.rank, 10, 1);  // only waits
    dies.driver.reset();
    const auto dead = survivor.events.wait_for<transport::PeerDead>();
    ASSERT_TRUE(dead.has_value());
    EXPECT_EQ(dead->rank, dies.rank);
    EXPECT_EQ(dead->cause, transport::DeathCause::kRefused);
  }
}

TEST(StreamDriver, APeerThatEndedEarlierIsReported) {
  Pair ranks;
  expect_transfer(ranks, 10);
  ranks.one.driver.reset();
  ASSERT_TRUE(harness::wait_until(
      [&] { return counters_of(*ranks.zero.driver).streams.lost_peers > 0; }, kTestPatience));
  ranks.zero.send(1, 100, 1);
  const auto dead = ranks.zero.events.wait_for<transport::PeerDead>();
  ASSERT_TRUE(dead.has_value());
  EXPECT_EQ(dead->cause, transport::DeathCause::kRefused);
}

TEST(StreamDriver, APeerThatNeverExistedIsReported) {
  Rank zero(0, stream_config(0));
  const UdpSocket nobody = UdpSocket::open(SocketAddress::parse("127.0.0.1:0").value()).value();
  ASSERT_TRUE(zero.driver->add_peer(1, nobody.local()).ok());
  ASSERT_TRUE(zero.driver->start().ok());
  zero.send(1, 100);
  const auto dead = zero.events.wait_for<transport::PeerDead>();
  ASSERT_TRUE(dead.has_value());
  EXPECT_EQ(dead->cause, transport::DeathCause::kRefused);
}

// Rank 1 does not read. Its queue is bounded, and rank 2 is not held up.
TEST(StreamDriver, APeerThatDoesNotReadHoldsUpNoOther) {
  constexpr std::uint32_t kLong = 60'000;
  Several ranks(3, [](DriverConfig& config) {
    config.endpoint.exchange.unsolicited = base::bytes(256 << 20);  // needs no credit
  });
  ranks[1].expect(0, 10);
  ranks[0].send(1, 10);  // from here on there is a connection
  ASSERT_TRUE(ranks[1].events.wait_for_count(1));
  ASSERT_TRUE(ranks[0].events.wait_for_count(1));
  std::promise<void> reads;
  std::promise<void> sleeps;
  ranks[1].driver->post([&](transport::Endpoint&, base::Instant) {
    sleeps.set_value();
    reads.get_future().wait();
  });
  sleeps.get_future().wait();
  ranks[0].send(1, kLong, 1);
  ranks[1].expect(0, kLong, 1);
  ranks[2].expect(0, 5000, 2);
  ranks[0].send(2, 5000, 2);
  const auto other = ranks[2].events.wait_for<transport::ReceiveReport>();
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->whole, 5000U);
  reads.set_value();
  ASSERT_TRUE(ranks[1].events.wait_for_count(2));
  const auto report = ranks[1].events.wait_for<transport::ReceiveReport>();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->whole, kLong);
  EXPECT_EQ(ranks[1].sink.wrong(), 0U);
  EXPECT_GT(counters_of(*ranks[0].driver).streams.waits, 0U);
}

TEST(StreamDriver, StrangersAreRejectedWithoutHarm) {
  Pair ranks;
  const SocketAddress acceptor = ranks.one.driver->local();
  const std::vector<std::uint8_t> garbage(100'000, 0x47);
  const UniqueFd silent = connect_to(acceptor);
  for (int i = 0; i < 20; ++i) {
    const UniqueFd talker = connect_to(acceptor);
    send_all(talker, garbage);
    EXPECT_TRUE(read_to_end(talker).empty());
  }
  const UniqueFd from_elsewhere = connect_to(acceptor, "127.0.0.2:0");  // no peer's host
  EXPECT_TRUE(read_to_end(from_elsewhere).empty());
  expect_transfer(ranks, 2000);
  EXPECT_GE(counters_of(*ranks.one.driver).streams.strangers, 21U);
}

// A stranger that claims to be a rank gets a proof, and cannot give one.
TEST(StreamDriver, AProcessWithoutTheKeyIsRejected) {
  Pair ranks;
  StreamIdentity forged{.rank = 0, .epoch = 1};
  forged.key.bytes[5] = 1;
  StreamHandshake handshake = StreamHandshake::connecting(forged, 1, {3});
  const UniqueFd stranger = connect_to(ranks.one.driver->local());
  send_all(stranger, handshake.reply());
  std::vector<std::uint8_t> words(64, 0);
  send_all(stranger, words);  // an invalid proof, and more
  EXPECT_EQ(read_to_end(stranger).size(), 32U);
  expect_transfer(ranks, 100);
}

// A peer with the key that sends an invalid frame loses its own connection only.
TEST(StreamDriver, AFrameThatIsTooLongEndsItsConnectionAlone) {
  Pair ranks;
  expect_transfer(ranks, 100);
  ranks.one.driver->post([&](transport::Endpoint&, base::Instant) {
    const SocketAddress nowhere = SocketAddress::parse("127.0.0.1:9").value();
    EXPECT_TRUE(ranks.one.driver->add_peer(2, nowhere).ok());
  });
  counters_of(*ranks.one.driver);
  StreamHandshake handshake = StreamHandshake::connecting({.rank = 2, .epoch = 1}, 1, {3});
  const UniqueFd rank_2 = connect_to(ranks.one.driver->local());
  send_all(rank_2, handshake.reply());
  handshake.sent(handshake.reply().size());
  std::array<std::uint8_t, 32> answer;
  ASSERT_EQ(::recv(rank_2.get(), answer.data(), answer.size(), MSG_WAITALL), 32);
  handshake.take(answer);
  ASSERT_EQ(handshake.state(), StreamHandshake::State::kDone);
  send_all(rank_2, handshake.reply());
  const std::vector<std::uint8_t> frames(64, 0xFF);  // length 2^32 - 1
  send_all(rank_2, frames);
  EXPECT_TRUE(read_to_end(rank_2).empty());
  ranks.one.expect(0, 100, 1);
  ranks.zero.send(1, 100, 1);
  EXPECT_TRUE(ranks.one.events.wait_for_count(2));
}

// Returns the acceptor's answer to a rank's hello; `take_proved` runs the acceptor.
template <typename TakeProved>
std::array<std::uint8_t, 32> answer_to(StreamHandshake& handshake, const UniqueFd& rank,
                                       const TakeProved& take_proved) {
  send_all(rank, handshake.reply());
  handshake.sent(handshake.reply().size());
  std::array<std::uint8_t, 32> answer{};
  ssize_t heard = -1;
  while (heard < 0 && !testing::Test::HasFatalFailure()) {
    take_proved();
    heard = ::recv(rank.get(), answer.data(), answer.size(), MSG_DONTWAIT);
  }
  EXPECT_EQ(heard, 32);
  return answer;
}

// A UDP socket, and what `listen` opens for TCP on its port. Another process may have that port, so
// this tries several, as TransportDriver::open() does.
template <typename Listener>
std::pair<UdpSocket, Listener> on_one_port(base::Result<Listener> (*listen)(const SocketAddress&)) {
  constexpr int kPortsTried = 100;
  for (int tried = 1;; ++tried) {
    UdpSocket port = UdpSocket::open(SocketAddress::parse("127.0.0.1:0").value()).value();
    base::Result<Listener> listener = listen(port.local());
    if (listener.ok() || tried == kPortsTried) {
      return {std::move(port), std::move(listener).value()};
    }
  }
}

// A stranger that was answered may believe that it is accepted, so others are closed first.
TEST(StreamAcceptor, AnAnsweredConnectionHasMoreTime) {
  constexpr int kPollMs = 100;  // between two polls
  auto on_port = on_one_port(StreamAcceptor::open);
  const UdpSocket& port = on_port.first;
  StreamAcceptor& acceptor = on_port.second;
  acceptor.begin_epoch({.rank = 1, .epoch = 1});
  acceptor.add_source(port.local());
  EXPECT_EQ(acceptor.next_timeout(), transport::kNever);
  const base::Instant now = base::MonotonicClock().now();
  const auto take_proved = [&] {
    pollfd readable{acceptor.fd(), POLLIN, 0};
    ::poll(&readable, 1, kPollMs);
    return acceptor.take_proved(now);
  };
  const UniqueFd silent = connect_to(port.local());
  const UniqueFd rank = connect_to(port.local());
  StreamHandshake handshake = StreamHandshake::connecting({.rank = 0, .epoch = 1}, 1, {3});
  const auto answer = answer_to(handshake, rank, [&] { ASSERT_TRUE(take_proved().empty()); });
  EXPECT_EQ(acceptor.next_timeout(), now + StreamAcceptor::kHelloTimeout);
  acceptor.on_timeout(now + StreamAcceptor::kHelloTimeout);
  EXPECT_EQ(acceptor.rejected(), 1U);
  EXPECT_TRUE(read_to_end(silent).empty());
  handshake.take(answer);
  send_all(rank, handshake.reply());
  std::vector<std::unique_ptr<StreamConnection>> known;
  while (known.empty()) {
    known = take_proved();
  }
  ASSERT_EQ(known.size(), 1U);
  EXPECT_EQ(known[0]->peer(), 0);
  acceptor.on_timeout(now + StreamAcceptor::kProofTimeout);
  EXPECT_EQ(acceptor.rejected(), 1U);
  EXPECT_EQ(acceptor.next_timeout(), transport::kNever);
}

// A process without the key opens streams from a host of the job and sends a rank's hello.
TEST(StreamAcceptor, AFloodFromOneHostKeepsNoRankOfAnotherOut) {
  constexpr int kPollMs = 100;  // between two polls
  auto on_port = on_one_port(StreamAcceptor::open);
  const UdpSocket& port = on_port.first;
  StreamAcceptor& acceptor = on_port.second;
  ASSERT_LE(acceptor.most_strangers(),
            std::max(StrangerTable::files_of_process() / 8, std::uint64_t{8}));
  acceptor.begin_epoch({.rank = 1, .epoch = 1});
  acceptor.add_source(SocketAddress::parse("127.0.0.1:0").value());
  acceptor.add_source(SocketAddress::parse("127.0.0.2:0").value());
  const base::Instant now = base::MonotonicClock().now();
  std::vector<std::unique_ptr<StreamConnection>> known;
  const auto take_proved = [&] {
    pollfd readable{acceptor.fd(), POLLIN, 0};
    ::poll(&readable, 1, kPollMs);
    for (std::unique_ptr<StreamConnection>& one : acceptor.take_proved(now)) {
      known.push_back(std::move(one));
    }
  };
  const std::size_t share = acceptor.most_strangers() / StrangerTable::kSourceShare;
  std::vector<UniqueFd> flood;
  for (std::size_t i = 0; i < share + 4; ++i) {
    flood.push_back(connect_to(port.local(), "127.0.0.2:0"));
    send_all(flood.back(), StreamHandshake::connecting({.rank = 0, .epoch = 1}, 1, {7}).reply());
    take_proved();
  }
  while (acceptor.rejected() < 4) {
    take_proved();
  }
  const UniqueFd rank = connect_to(port.local());
  StreamHandshake handshake = StreamHandshake::connecting({.rank = 0, .epoch = 1}, 1, {3});
  const auto answer = answer_to(handshake, rank, take_proved);
  handshake.take(answer);
  send_all(rank, handshake.reply());
  while (known.empty()) {
    take_proved();
  }
  EXPECT_EQ(known[0]->peer(), 0);
}

// ------------------------------------------------------------------ streams beside datagrams

constexpr transport::Carrier kStream = transport::Carrier::kStream;

bool has_all_streams(Rank& rank) {
  std::promise<bool> has_all;
  rank.driver->post([&](transport::Endpoint& endpoint, base::Instant) {
    has_all.set_value(endpoint.has_all_streams());
  });
  return has_all.get_future().get();
}

void open_streams(Rank& rank) {
  rank.driver->post([&](transport::Endpoint&, base::Instant) { rank.driver->open_streams(); });
}

// Ranks that use UDP and have streams to each other.
struct PairWithStreams : Pair {
  PairWithStreams() : Pair(Carrier::kAuto) {
    for (Rank* rank : {&zero, &one}) {
      open_streams(*rank);
    }
    for (Rank* rank : {&zero, &one}) {
      EXPECT_TRUE(harness::wait_until([&] { return has_all_streams(*rank); }, kTestPatience));
    }
  }
};

TEST(StreamMessages, TravelBesideDatagramsBothWays) {
  PairWithStreams ranks;
  constexpr std::uint32_t kPackets = 20'000;
  for (const auto& [from, to] : {std::pair(&ranks.zero, &ranks.one), {&ranks.one, &ranks.zero}}) {
    to->expect(from->rank, kPackets, 1, kStream);
    to->expect(from->rank, kPackets / 4, 2);
  }
  counters_of(*ranks.zero.driver);
  counters_of(*ranks.one.driver);  // by now all messages are expected
  for (const auto& [from, to] : {std::pair(&ranks.zero, &ranks.one), {&ranks.one, &ranks.zero}}) {
    from->send(to->rank, kPackets, 1, nullptr, kStream);
    from->send(to->rank, kPackets / 4, 2);
  }
  for (Rank* rank : {&ranks.zero, &ranks.one}) {
    ASSERT_TRUE(rank->events.wait_for_count(4));
    EXPECT_EQ(rank->sink.wrong(), 0U);
    EXPECT_EQ(rank->events.streams_used(), 0U) << "no peer moved to TCP altogether";
    const DriverCounters counters = counters_of(*rank->driver);
    EXPECT_EQ(counters.streams.packets_sent, kPackets) << "data alone, and all of it once";
    EXPECT_GE(counters.sent.datagrams - counters.streams.packets_sent, kPackets / 4);
    EXPECT_LT(counters.streams.send_calls, kPackets / 10);
  }
}

TEST(StreamMessages, AreExpectedLateWithoutHarm) {
  PairWithStreams ranks;
  constexpr std::uint32_t kPackets = 20'000;
  ranks.zero.send(1, kPackets, 1, nullptr, kStream);
  ASSERT_TRUE(harness::wait_until([&] { return counters_of(*ranks.one.driver).endpoint.early > 0; },
                                  kTestPatience));
  ranks.one.expect(0, kPackets, 1, kStream);
  const auto report = ranks.one.events.wait_for<transport::ReceiveReport>();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->whole, kPackets);
  EXPECT_EQ(ranks.one.sink.wrong(), 0U);
}

TEST(StreamMessages, EndWithTheirConnection) {
  PairWithStreams ranks;
  ranks.zero.expect(1, 10, 1, kStream);  // only waits
  counters_of(*ranks.zero.driver);
  ranks.one.driver.reset();
  const auto dead = ranks.zero.events.wait_for<transport::PeerDead>();
  ASSERT_TRUE(dead.has_value());
  EXPECT_EQ(dead->cause, transport::DeathCause::kRefused);
}

TEST(StreamMessages, APeerWithoutTcpKeepsItsDatagrams) {
  Two ranks(stream_config(0, Carrier::kAuto), stream_config(1, Carrier::kUdp));
  open_streams(ranks.zero);
  open_streams(ranks.one);
  expect_transfer(ranks, 2000);
  EXPECT_FALSE(has_all_streams(ranks.zero) || has_all_streams(ranks.one));
  EXPECT_EQ(counters_of(*ranks.zero.driver).streams.lost_peers, 0U);
}

TEST(StreamMessages, NewEpochsHaveNoStreamsYet) {
  PairWithStreams ranks;
  std::promise<bool> has_stream;
  ranks.zero.driver->post([&](transport::Endpoint& endpoint, base::Instant) {
    ranks.zero.driver->begin_epoch({.job = kTestJob, .number = 2, .session = {}});
    EXPECT_TRUE(ranks.zero.driver->add_peer(1, ranks.one.driver->local()).ok());
    has_stream.set_value(endpoint.has_stream(1));
  });
  EXPECT_FALSE(has_stream.get_future().get());
}

// ------------------------------------------------------------------ automatic choice

// A rank that waits for a CPU at its first packet looks like one that UDP does not reach. The test
// then tries another pair.
TEST(AutoCarrier, UdpIsUsedIfDatagramsArrive) {
  constexpr int kPairs = 20;
  std::uint64_t over_streams = 1;
  for (int i = 0; i < kPairs && over_streams != 0; ++i) {
    Pair ranks(Carrier::kAuto);
    expect_transfer(ranks, 5000);
    over_streams = counters_of(*ranks.zero.driver).streams.packets_sent +
                   counters_of(*ranks.one.driver).streams.packets_sent;
  }
  EXPECT_EQ(over_streams, 0U);
}

// A proxy in front of a host that passes TCP and drops datagrams.
class TcpOnly {
 public:
  explicit TcpOnly(const SocketAddress& target) : TcpOnly(target, on_one_port(listen_tcp)) {}
  ~TcpOnly() {
    stopped_ = true;
    thread_.join();
  }
  const SocketAddress& address() const { return swallows_.local(); }

 private:
  struct Way {
    UniqueFd in;
    UniqueFd out;
  };

  TcpOnly(const SocketAddress& target, std::pair<UdpSocket, UniqueFd> on_port)
      : target_(target),
        swallows_(std::move(on_port.first)),
        acceptor_(std::move(on_port.second)),
        thread_([this] { relay(); }) {}

  void relay() {
    while (!stopped_) {
      if (Accepted accepted = accept_tcp(acceptor_.get()); accepted.fd.valid()) {
        ways_.push_back({std::move(accepted.fd), connect_to(target_)});
      }
      std::vector<pollfd> polled = {{acceptor_.get(), POLLIN, 0}};
      for (const Way& way : ways_) {
        polled.push_back({way.in.get(), POLLIN, 0});
        polled.push_back({way.out.get(), POLLIN, 0});
      }
      ::poll(polled.data(), polled.size(), 20);
      for (std::size_t i = 1; i < polled.size(); ++i) {
        const Way& way = ways_[(i - 1) / 2];
        if (polled[i].revents != 0) {
          pass(polled[i].fd, i % 2 == 1 ? way.out : way.in);
        }
      }
    }
  }
  static void pass(int from, const UniqueFd& to) {
    std::array<std::uint8_t, 16'384> bytes;
    const ssize_t got = ::recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    base::ByteView left(bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    while (!left.empty()) {
      const ssize_t sent = ::send(to.get(), left.data(), left.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) {
        return;
      }
      left = left.subspan(sent < 0 ? 0 : static_cast<std::size_t>(sent));
    }
  }

  SocketAddress target_;
  UdpSocket swallows_;
  UniqueFd acceptor_;
  std::vector<Way> ways_;
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

// Only TCP reaches rank 1 from rank 0; if `both`, the same holds in the other direction.
void expect_fallback(bool both, bool has_streams = false) {
  Rank zero(0, stream_config(0, Carrier::kAuto));
  Rank one(1, stream_config(1, Carrier::kAuto));
  const TcpOnly to_one(one.driver->local());
  const TcpOnly to_zero(zero.driver->local());
  ASSERT_TRUE(zero.driver->add_peer(1, to_one.address()).ok());
  ASSERT_TRUE(one.driver->add_peer(0, both ? to_zero.address() : zero.driver->local()).ok());
  ASSERT_TRUE(zero.driver->start().ok() && one.driver->start().ok());
  if (has_streams) {
    open_streams(zero);
    open_streams(one);
    ASSERT_TRUE(harness::wait_until([&] { return has_all_streams(zero) && has_all_streams(one); },
                                    kTestPatience));
  }
  one.expect(0, 3000);
  zero.expect(1, 3000);
  zero.send(1, 3000);
  one.send(0, 3000);
  for (Rank* rank : {&zero, &one}) {
    const auto report = rank->events.wait_for<transport::ReceiveReport>();
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->whole, 3000U);
    EXPECT_EQ(rank->sink.wrong(), 0U);
    EXPECT_EQ(rank->events.streams_used(), 1U);
  }
  EXPECT_GE(counters_of(*zero.driver).streams.packets_sent, 3000U);
}

TEST(AutoCarrier, TcpIsUsedIfDatagramsAreDropped) {
  expect_fallback(/*both=*/true);
}

TEST(AutoCarrier, OneBlockedDirectionIsEnough) {
  expect_fallback(/*both=*/false);
}

TEST(AutoCarrier, StreamsThatAreOpenTakeOverFromDatagramsThatAreDropped) {
  expect_fallback(/*both=*/true, /*has_streams=*/true);
  expect_fallback(/*both=*/false, /*has_streams=*/true);
}

}  // namespace
}  // namespace spillway::net
