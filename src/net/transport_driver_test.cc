// SPDX-License-Identifier: Apache-2.0
//
// Two or more drivers on loopback, each with its own thread.
#include "net/transport_driver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <future>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "transport/planes_testing.h"

namespace spillway::net {
namespace {

using transport::Outcome;

constexpr std::uint16_t kJob = 3;
constexpr auto kPatience = std::chrono::seconds(20);

std::uint8_t planes_byte(std::uint16_t packet, std::size_t at) {
  return static_cast<std::uint8_t>(packet * 7 + at);
}

class TestSource final : public transport::PayloadSource {
 public:
  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override {
    std::vector<std::uint8_t> planes(transport::kTestPlanesBytes);
    for (std::size_t i = 0; i < planes.size(); ++i) {
      planes[i] = planes_byte(stamp.packet, i);
    }
    return wire::write_data_packet(transport::test_header(stamp), planes, auth, out);
  }
};

class TestSink final : public transport::PayloadSink {
 public:
  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override {
    const std::vector<std::uint8_t> planes = transport::test_planes(packet, bytes);
    for (std::size_t i = 0; i < planes.size(); ++i) {
      wrong_ += planes[i] != planes_byte(packet.header.stamp.packet, i) ? 1 : 0;
    }
    return transport::whole_test_planes(planes);
  }
  std::uint64_t wrong() const { return wrong_; }

 private:
  std::uint64_t wrong_ = 0;
};

// Collects events and lets the test's thread wait for them.
class Events final : public DriverListener {
 public:
  void on_event(const transport::Event& event, transport::Endpoint& /*endpoint*/,
                base::Instant /*now*/) override {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    changed_.notify_all();
  }
  void on_broken(const base::Status& cause, transport::Endpoint& /*endpoint*/,
                 base::Instant /*now*/) override {
    const std::lock_guard lock(mutex_);
    broken_.push_back(cause);
    changed_.notify_all();
  }
  std::vector<base::Status> wait_for_broken(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return broken_.size() >= count; });
    return broken_;
  }
  template <typename T>
  std::optional<T> wait_for() {
    std::unique_lock lock(mutex_);
    std::optional<T> found;
    changed_.wait_for(lock, kPatience, [&] {
      for (const transport::Event& event : events_) {
        if (const T* wanted = std::get_if<T>(&event)) {
          found = *wanted;
        }
      }
      return found.has_value();
    });
    return found;
  }
  bool wait_for_count(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return events_.size() >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<transport::Event> events_;
  std::vector<base::Status> broken_;
};

DriverConfig config_of(std::uint16_t rank, const std::string& address) {
  DriverConfig config;
  config.listen = SocketAddress::parse(address).value();
  config.endpoint.rank = rank;
  config.endpoint.exchange.paths = 4;
  config.endpoint.exchange.burst_packets = 16;
  config.endpoint.exchange.probe_min = base::milliseconds(2);
  return config;
}

constexpr std::uint32_t kPacketBytes = 36 + 4 + 640 + 4;

struct Rank {
  Rank(std::uint16_t number, const DriverConfig& config)
      : rank(number), driver(TransportDriver::open(config, events).value()) {
    driver->begin_epoch({.job = kJob, .number = 1, .session = {}});
  }

  void send(std::uint16_t to, std::uint32_t packets, std::uint32_t operation = 0) {
    driver->post([=, this](transport::Endpoint& endpoint, base::Instant now) {
      EXPECT_TRUE(endpoint
                      .send({.id = {.operation = operation, .source = rank},
                             .to = to,
                             .packets = packets,
                             .packet_bytes = kPacketBytes,
                             .loss = {.loss_bound_ppm = 0},
                             .source = &source},
                            now)
                      .ok());
    });
  }
  void expect(std::uint16_t from, std::uint32_t packets, std::uint32_t operation = 0) {
    driver->post([=, this](transport::Endpoint& endpoint, base::Instant now) {
      EXPECT_TRUE(endpoint
                      .expect({.id = {.operation = operation, .source = from},
                               .packets = packets,
                               .packet_bytes = kPacketBytes,
                               .planes = transport::kTestPlanes,
                               .loss = {.loss_bound_ppm = 0, .min_planes = transport::kTestPlanes},
                               .sink = &sink},
                              now)
                      .ok());
    });
  }

  std::uint16_t rank;
  TestSource source;
  TestSink sink;
  Events events;
  std::unique_ptr<TransportDriver> driver;
};

struct Two {
  explicit Two(const DriverConfig& a, const DriverConfig& b) : zero(0, a), one(1, b) {
    EXPECT_TRUE(zero.driver->add_peer(1, one.driver->local()).ok());
    EXPECT_TRUE(one.driver->add_peer(0, zero.driver->local()).ok());
    EXPECT_TRUE(zero.driver->start().ok() && one.driver->start().ok());
  }
  explicit Two(const std::string& address = "127.0.0.1:0")
      : Two(config_of(0, address), config_of(1, address)) {}

  Rank zero;
  Rank one;
};

DriverCounters counters_of(TransportDriver& driver) {
  std::promise<DriverCounters> counters;
  driver.post([&](transport::Endpoint&, base::Instant) { counters.set_value(driver.counters()); });
  return counters.get_future().get();
}

void expect_transfer(Two& ranks, std::uint32_t packets) {
  ranks.one.expect(0, packets);
  ranks.zero.send(1, packets);
  const auto report = ranks.one.events.wait_for<transport::ReceiveReport>();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->outcome, Outcome::kEverything);
  EXPECT_EQ(report->whole, packets);
  EXPECT_EQ(ranks.one.sink.wrong(), 0U);
  EXPECT_TRUE(ranks.zero.events.wait_for<transport::SendReport>().has_value());
}

TEST(DriverConfig, IsAsVariablesSay) {
  const auto plain = driver_config_from({});
  ASSERT_TRUE(plain.ok());
  EXPECT_TRUE(plain->offloads.gso && plain->offloads.gro && plain->offloads.batching);
  EXPECT_EQ(plain->busy_poll, base::Duration());
  const auto told = driver_config_from({{"SPILLWAY_GRO", "0"}, {"SPILLWAY_BUSY_POLL", "50"}});
  ASSERT_TRUE(told.ok());
  EXPECT_TRUE(told->offloads.gso && !told->offloads.gro);
  EXPECT_EQ(told->busy_poll, base::microseconds(50));
  EXPECT_EQ(driver_config_from({{"SPILLWAY_GSO", "no"}}).status().message(),
            "SPILLWAY_GSO is 'no': it must be 0 or 1");
  EXPECT_EQ(driver_config_from({{"SPILLWAY_BUSY_POLL", "50us"}}).status().message(),
            "SPILLWAY_BUSY_POLL is '50us': it must be a whole number from 0 to 1000000");
}

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
  const auto idle = std::chrono::milliseconds(300);
  const auto before = std::clock();
  std::this_thread::sleep_for(idle);
  const double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 0.1);  // of the 0.6 that two busy loops would have used
}

TEST(TransportDriver, NamesAPeerThatDied) {
  DriverConfig a = config_of(0, "127.0.0.1:0");
  a.endpoint.exchange.peer_timeout = base::milliseconds(200);
  auto ranks = std::make_unique<Two>(a, config_of(1, "127.0.0.1:0"));
  expect_transfer(*ranks, 10);
  ranks->one.driver.reset();
  ranks->zero.send(1, 100, 1);
  const auto dead = ranks->zero.events.wait_for<transport::PeerDead>();
  ASSERT_TRUE(dead.has_value());
  EXPECT_EQ(dead->rank, 1);
}

// Silence would not be noticed before the test has run out of patience.
DriverConfig patient(std::uint16_t rank) {
  DriverConfig config = config_of(rank, "127.0.0.1:0");
  config.endpoint.exchange.peer_timeout = base::seconds(600);
  return config;
}

TEST(TransportDriver, APortThatRefusesMeansThatThePeerIsGone) {
  Two ranks(patient(0), patient(1));
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
  Two ranks(patient(0), patient(1));
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
}  // namespace spillway::net
