// SPDX-License-Identifier: Apache-2.0
//
// Drivers that go from one epoch to the next while their loops run: sockets stay, peers do not.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>

#include "net/driver_testing.h"
#include "net/transport_driver.h"
#include "transport/planes_testing.h"

namespace spillway::net {
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
