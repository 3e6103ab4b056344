// SPDX-License-Identifier: Apache-2.0
//
// Two or more drivers on loopback, each with its own thread.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "net/driver_testing.h"
#include "net/transport_driver.h"
#include "transport/exchange_testing.h"

namespace spillway::net {

namespace {

TEST(TransportDriver, CarriesAMessage) {
  Two ranks;
  expect_transfer(ranks, 5000);
}

TEST(TransportDriver, CarriesAMessageOverIpv6) {
  Two ranks("[::1]:0");
  expect_transfer(ranks, 1000);
}

TEST(TransportDriver, CarriesAMessageWithoutOffloads) {
  DriverConfig a = config_of(0, "127.0.0.1:0");
  DriverConfig b = config_of(1, "127.0.0.1:0");
  a.offloads = b.offloads = {.gso = false, .gro = false, .batching = false};
  Two ranks(a, b);
  expect_transfer(ranks, 500);
}

TEST(TransportDriver, CarriesAMessageWithHelpers) {
  DriverConfig a = config_of(0, "127.0.0.1:0");
  DriverConfig b = config_of(1, "127.0.0.1:0");
  a.io_threads = b.io_threads = kMaxIoThreads;
  Two ranks(a, b);
  expect_transfer(ranks, 20000);
}

TEST(TransportDriver, HasAHelperSendWhileProcessorsAreIdle) {
  Two ranks(config_of(0, "127.0.0.1:0"), config_of(1, "127.0.0.1:0"), /*help_when_idle=*/true);
  expect_transfer(ranks, 20000);
  EXPECT_GE(ranks.zero.events.asked_for_processors(), 3U);  // idle every third time
}

// Detects writes from it after it was destroyed. A helper writes slowly.
class SlowSource final : public transport::PayloadSource {
 public:
  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override {
    if (std::this_thread::get_id() != loop) {
      has_helper = true;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    was_used_late = was_used_late || has_gone;
    return source_.write(stamp, auth, out);
  }
  std::thread::id loop;
  std::atomic<bool> has_helper{false};
  std::atomic<bool> has_gone{false};
  std::atomic<bool> was_used_late{false};

 private:
  TestSource source_;
};

TEST(TransportDriver, ReadsNoSourceOfAMessageThatWasWithdrawn) {
  DriverConfig a = config_of(0, "127.0.0.1:0");
  a.io_threads = 2;
  Two ranks(a, config_of(1, "127.0.0.1:0"));
  SlowSource source;
  const auto on_loop = [&](const std::function<void(transport::Endpoint&, base::Instant)>& work) {
    std::promise<void> done;
    ranks.zero.driver->post([&](transport::Endpoint& endpoint, base::Instant now) {
      work(endpoint, now);
      done.set_value();
    });
    done.get_future().wait();
  };
  on_loop([&](auto&, auto) { source.loop = std::this_thread::get_id(); });
  ranks.one.expect(0, 60000);
  ranks.zero.send(1, 60000, /*operation=*/0, &source);
  EXPECT_TRUE(harness::wait_until([&] { return source.has_helper.load(); }, kTestPatience));
  on_loop([&](transport::Endpoint& endpoint, base::Instant now) {
    endpoint.withdraw({.operation = 0, .source = 0}, 1, now);
    source.has_gone = true;
  });
  ranks.zero.driver->stop_and_wait();  // nothing is written after this
  EXPECT_FALSE(source.was_used_late);
}

TEST(TransportDriver, CarriesManyMessagesBothWays) {
  Two ranks;
  constexpr std::uint32_t kMessages = 50;
  for (std::uint32_t operation = 0; operation < kMessages; ++operation) {
    ranks.one.expect(0, 40 + operation, operation);
    ranks.zero.expect(1, 40 + operation, operation);
    ranks.zero.send(1, 40 + operation, operation);
    ranks.one.send(0, 40 + operation, operation);
  }
  EXPECT_TRUE(ranks.zero.events.wait_for_count(2 * kMessages));
  EXPECT_TRUE(ranks.one.events.wait_for_count(2 * kMessages));
  EXPECT_EQ(ranks.zero.sink.wrong() + ranks.one.sink.wrong(), 0U);
}

TEST(TransportDriver, PacesWhatItSends) {
  DriverConfig a = config_of(0, "127.0.0.1:0");
  a.send_rate = base::bits_per_second(100'000'000);
  a.send_burst = base::bytes(8000);
  Two ranks(a, config_of(1, "127.0.0.1:0"));
  const base::Instant start = base::MonotonicClock().now();
  expect_transfer(ranks, 1500);  // about a megabyte: 82 ms
  EXPECT_GE(base::MonotonicClock().now() - start, base::milliseconds(75));
}

TEST(TransportDriver, SleepsWhenNothingIsDue) {
  Two ranks;
  expect_transfer(ranks, 10);
  const auto sleeps = [&] {
    return counters_of(*ranks.zero.driver).sleeps + counters_of(*ranks.one.driver).sleeps;
  };
  const base::MonotonicClock clock;
  const base::Instant began = clock.now();
  const std::uint64_t before = sleeps();
  std::uint64_t in_between = 0;
  // A loop that never sleeps counts none.
  ASSERT_TRUE(harness::wait_until(
      [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        in_between = sleeps() - before;
        return in_between > 0;
      },
      kTestPatience));
  // One whose sleeps end at once counts 300 per millisecond. A correct loop sleeps no more often if
  // it is starved.
  const double milliseconds = base::seconds_of(clock.now() - began) * 1e3;
  EXPECT_LE(static_cast<double>(in_between), 10 * milliseconds);
}

// Its port takes packets, but nobody reads them.
TEST(TransportDriver, NamesAPeerThatIsSilent) {
  const UdpSocket silent = UdpSocket::open(SocketAddress::parse("127.0.0.1:0").value()).value();
  DriverConfig config = config_of(0, "127.0.0.1:0");
  config.endpoint.exchange.peer_timeout = base::milliseconds(200);
  Rank zero(0, config);
  ASSERT_TRUE(zero.driver->add_peer(1, silent.local()).ok());
  ASSERT_TRUE(zero.driver->start().ok());
  zero.send(1, 100);
  const auto dead = zero.events.wait_for<transport::PeerDead>();
  ASSERT_TRUE(dead.has_value());
  EXPECT_EQ(dead->rank, 1);
  EXPECT_EQ(dead->cause, transport::DeathCause::kSilent);
}

TEST(TransportDriver, APortThatRefusesMeansThatThePeerIsGone) {
  Two ranks(config_of(0, "127.0.0.1:0"), config_of(1, "127.0.0.1:0"));
  expect_transfer(ranks, 10);
  ranks.one.driver.reset();
  ranks.zero.send(1, 100, 1);
  const auto dead = ranks.zero.events.wait_for<transport::PeerDead>();
  ASSERT_TRUE(dead.has_value());
  EXPECT_EQ(dead->rank, 1);
  EXPECT_EQ(dead->cause, transport::DeathCause::kRefused);
  EXPECT_GE(counters_of(*ranks.zero.driver).errors.refusals, 1U);
}

TEST(TransportDriver, WhoeverOnlyWaitsFindsOutToo) {
  Two ranks(config_of(0, "127.0.0.1:0"), config_of(1, "127.0.0.1:0"));
  expect_transfer(ranks, 10);
  ranks.zero.expect(1, 10, 1);
  ranks.one.driver.reset();
  const auto dead = ranks.zero.events.wait_for<transport::PeerDead>();
  ASSERT_TRUE(dead.has_value());
  EXPECT_EQ(dead->cause, transport::DeathCause::kRefused);
}

TEST(TransportDriver, CountsStrangersAndGoesOn) {
  Two ranks;
  UdpSocket stranger = UdpSocket::open(SocketAddress::parse("127.0.0.2:0").value()).value();
  const SocketAddress& target = ranks.one.driver->local();
  const std::vector<std::uint8_t> garbage(1000, 0x11);
  for (int i = 0; i < 100; ++i) {
    ::sendto(stranger.fd(), garbage.data(), garbage.size(), 0, target.data(), target.size());
  }
  expect_transfer(ranks, 100);
  const DriverCounters counters = counters_of(*ranks.one.driver);
  EXPECT_EQ(counters.received.strangers, 100U);
  for (const std::uint64_t count : counters.faults) {
    EXPECT_EQ(count, 0U);
  }
}

TEST(TransportDriver, OutlivesWhatIsThrownOnItsThread) {
  Two ranks;
  ranks.one.driver->post([](transport::Endpoint&, base::Instant) { throw std::bad_alloc(); });
  std::vector<base::Status> broken = ranks.one.events.wait_for_broken(1);
  ASSERT_EQ(broken.size(), 1U);
  EXPECT_EQ(broken[0].code(), base::StatusCode::kLimitExceeded);
  EXPECT_NE(broken[0].message().find("memory"), std::string::npos);
  ranks.one.driver->post(
      [](transport::Endpoint&, base::Instant) { throw std::runtime_error("something else"); });
  broken = ranks.one.events.wait_for_broken(2);
  ASSERT_EQ(broken.size(), 2U);
  EXPECT_NE(broken[1].message().find("something else"), std::string::npos);
  expect_transfer(ranks, 100);
}

TEST(TransportDriver, CountsGarbageAndGoesOn) {
  Two ranks;
  UdpSocket stranger = UdpSocket::open(SocketAddress::parse("127.0.0.1:0").value()).value();
  const SocketAddress& target = ranks.one.driver->local();
  std::vector<std::uint8_t> garbage(1000, 0x5A);
  for (int i = 0; i < 2000; ++i) {
    garbage[0] = static_cast<std::uint8_t>(i);
    ::sendto(stranger.fd(), garbage.data(), 1 + i % 1000, 0, target.data(), target.size());
  }
  expect_transfer(ranks, 2000);
  const DriverCounters counters = counters_of(*ranks.one.driver);
  std::uint64_t faults = 0;
  for (const std::uint64_t count : counters.faults) {
    faults += count;
  }
  EXPECT_GE(faults + counters.received.overflowed, 2000U);
}

TEST(TransportDriver, RefusesAPortThatIsTaken) {
  const UdpSocket taken = UdpSocket::open(SocketAddress::parse("127.0.0.1:0").value()).value();
  Events events;
  const auto driver = TransportDriver::open(config_of(0, taken.local().to_string()), events);
  ASSERT_FALSE(driver.ok());
  EXPECT_NE(driver.status().message().find("choose another"), std::string::npos);
}

}  // namespace

// Drivers that go from one epoch to the next while their loops run: sockets stay, peers do not.

namespace {

constexpr std::uint16_t kJob = 3;
constexpr std::uint32_t kPackets = 200;
constexpr std::uint32_t kPacketBytes = 720;
constexpr std::uint32_t kLate = 50;  // packets; all of them arrive without credit

class Planes final : public transport::PayloadSource {
 public:
  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override {
    const std::vector<std::uint8_t> planes(transport::kTestPlanesBytes, 5);
    return wire::write_data_packet(transport::test_header(stamp), planes, auth, out);
  }
};

class Sink final : public transport::PayloadSink {
 public:
  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override {
    return transport::whole_test_planes(transport::test_planes(packet, bytes));
  }
};

// Events of a driver's whole life.
class Happenings final : public DriverListener {
 public:
  void on_event(const transport::Event& event, transport::Endpoint& /*endpoint*/,
                base::Instant /*now*/) override {
    const std::lock_guard lock(mutex_);
    if (const auto* report = std::get_if<transport::ReceiveReport>(&event)) {
      received_ += report->whole == kPackets ? 1 : 0;
    } else if (const auto* dead = std::get_if<transport::PeerDead>(&event)) {
      dead_ = *dead;
    }
    changed_.notify_all();
  }
  bool has_received(std::size_t messages) {
    return wait([&] { return received_ >= messages; });
  }
  std::optional<transport::PeerDead> death() {
    wait([&] { return dead_.has_value(); });
    const std::lock_guard lock(mutex_);
    return dead_;
  }
  bool has_deaths() {
    const std::lock_guard lock(mutex_);
    return dead_.has_value();
  }

 private:
  template <typename Condition>
  bool wait(const Condition& condition) {
    std::unique_lock lock(mutex_);
    return harness::wait_patiently(
        [&](std::chrono::nanoseconds left) { return changed_.wait_for(lock, left, condition); },
        kTestPatience);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t received_ = 0;
  std::optional<transport::PeerDead> dead_;
};

class Process {
 public:
  explicit Process(std::uint16_t rank, const std::string& address = "127.0.0.1:0") : rank_(rank) {
    DriverConfig config;
    config.listen = SocketAddress::parse(address).value();
    config.endpoint.rank = rank;
    config.endpoint.exchange.paths = 4;
    config.endpoint.exchange.peer_timeout = base::seconds(3600);
    driver_ = TransportDriver::open(config, happenings).value();
    EXPECT_TRUE(driver_->start().ok());
  }

  const SocketAddress& local() const { return driver_->local(); }

  // On the loop's thread, between two packets.
  void join(std::uint64_t epoch, std::uint16_t peer, const SocketAddress& address) {
    on_loop([&](transport::Endpoint&, base::Instant) {
      driver_->begin_epoch({.job = kJob, .number = epoch, .session = {}});
      EXPECT_TRUE(driver_->add_peer(peer, address).ok());
    });
  }
  void send(std::uint16_t to, std::uint64_t operation) {
    on_loop([&](transport::Endpoint& endpoint, base::Instant now) {
      EXPECT_TRUE(endpoint
                      .send({.id = {.operation = operation, .source = rank_},
                             .to = to,
                             .packets = kPackets,
                             .packet_bytes = kPacketBytes,
                             .loss = {.loss_bound_ppm = 0},
                             .source = &source_},
                            now)
                      .ok());
    });
  }
  void expect(std::uint16_t from, std::uint64_t operation) {
    on_loop([&](transport::Endpoint& endpoint, base::Instant now) {
      EXPECT_TRUE(endpoint
                      .expect({.id = {.operation = operation, .source = from},
                               .packets = kPackets,
                               .packet_bytes = kPacketBytes,
                               .planes = transport::kTestPlanes,
                               .loss = {.loss_bound_ppm = 0, .min_planes = transport::kTestPlanes},
                               .sink = &sink_},
                              now)
                      .ok());
    });
  }
  DriverCounters counters() {
    DriverCounters counters;
    on_loop([&](transport::Endpoint&, base::Instant) { counters = driver_->counters(); });
    return counters;
  }
  // Polls until the condition holds.
  template <typename Condition>
  bool comes_to(const Condition& condition) {
    return harness::wait_until([&] { return condition(counters()); }, kTestPatience);
  }

  Happenings happenings;

 private:
  template <typename Task>
  void on_loop(const Task& task) {
    std::promise<void> done;
    driver_->post([&](transport::Endpoint& endpoint, base::Instant now) {
      task(endpoint, now);
      done.set_value();
    });
    done.get_future().get();
  }

  std::uint16_t rank_;
  Planes source_;
  Sink sink_;
  std::unique_ptr<TransportDriver> driver_;
};

// Both add each other in this epoch.
void join(Process& zero, Process& one, std::uint64_t epoch) {
  one.join(epoch, 0, zero.local());
  zero.join(epoch, 1, one.local());
}

// Exchanges messages both ways, with the same names in every epoch.
void expect_exchange(Process& zero, Process& one, std::size_t of_zero, std::size_t of_one) {
  zero.expect(1, 4);
  one.expect(0, 4);
  zero.send(1, 4);
  one.send(0, 4);
  EXPECT_TRUE(zero.happenings.has_received(of_zero));
  EXPECT_TRUE(one.happenings.has_received(of_one));
}

TEST(EpochsOnSockets, FollowEachOtherOnTheSamePort) {
  Process zero(0);
  Process before(1);
  Process after(1);
  const std::string address = zero.local().to_string();
  join(zero, before, 1);
  expect_exchange(zero, before, 1, 1);
  join(zero, after, 2);
  expect_exchange(zero, after, 2, 1);
  EXPECT_EQ(zero.local().to_string(), address);
  EXPECT_FALSE(zero.happenings.has_deaths());
}

TEST(EpochsOnSockets, AreDeafToWhoStaysBehind) {
  Process zero(0);
  Process before(1);
  Process after(1);
  join(zero, before, 1);
  join(zero, after, 2);
  zero.expect(1, 4);
  before.send(0, 4);
  EXPECT_TRUE(zero.comes_to(
      [](const DriverCounters& counters) { return counters.endpoint.other_epoch > kLate; }));
  const DriverCounters counters = zero.counters();
  EXPECT_EQ(counters.endpoint.data_taken, 0U);
  EXPECT_EQ(counters.endpoint.early, 0U);
  after.send(0, 4);
  EXPECT_TRUE(zero.happenings.has_received(1));
}

// Hosts of former peers become strangers.
TEST(EpochsOnSockets, ForgetTheHostsOfPeersThatAreGone) {
  Process zero(0);
  Process before(1, "127.0.0.2:0");
  Process after(1);
  join(zero, before, 1);
  expect_exchange(zero, before, 1, 1);
  join(zero, after, 2);
  before.join(1, 0, zero.local());
  before.send(0, 5);
  EXPECT_TRUE(zero.comes_to(
      [](const DriverCounters& counters) { return counters.received.strangers > kLate; }));
  expect_exchange(zero, after, 2, 1);
}

// A port moves from one rank to another: refusals must then be about the new one.
TEST(EpochsOnSockets, KnowWhoseAPortIsNow) {
  Process zero(0);
  auto before = std::make_unique<Process>(1);
  const SocketAddress address = before->local();
  join(zero, *before, 1);
  expect_exchange(zero, *before, 1, 1);
  zero.join(2, 2, address);
  before.reset();
  zero.send(2, 4);
  const std::optional<transport::PeerDead> dead = zero.happenings.death();
  ASSERT_TRUE(dead.has_value());
  EXPECT_EQ(dead->rank, 2);
  EXPECT_EQ(dead->cause, transport::DeathCause::kRefused);
}

}  // namespace

}  // namespace spillway::net
