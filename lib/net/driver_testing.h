// SPDX-License-Identifier: Apache-2.0
//
// Test drivers on loopback, each with its own thread. Every byte of their messages is checked.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "harness/slowdown.h"
#include "net/transport_driver.h"
#include "transport/exchange_testing.h"

namespace spillway::net {

inline constexpr std::uint16_t kTestJob = 3;

// A test that waits this long has failed, on a quiet machine.
inline constexpr std::chrono::nanoseconds kTestPatience = std::chrono::seconds(120);

inline std::uint8_t planes_byte(std::uint16_t packet, std::size_t at) {
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
  void on_stream_used(std::uint16_t /*rank*/) override {
    const std::lock_guard lock(mutex_);
    ++streams_used_;
  }
  std::size_t streams_used() {
    const std::lock_guard lock(mutex_);
    return streams_used_;
  }
  void on_broken(const base::Status& cause, transport::Endpoint& /*endpoint*/,
                 base::Instant /*now*/) override {
    const std::lock_guard lock(mutex_);
    broken_.push_back(cause);
    changed_.notify_all();
  }
  bool leaves_processors() const override { return ++asked_for_processors_ % 3 == 0; }
  unsigned asked_for_processors() const { return asked_for_processors_; }
  std::vector<base::Status> wait_for_broken(std::size_t count) {
    std::unique_lock lock(mutex_);
    wait(lock, [&] { return broken_.size() >= count; });
    return broken_;
  }
  template <typename T>
  std::optional<T> wait_for() {
    std::unique_lock lock(mutex_);
    std::optional<T> found;
    wait(lock, [&] {
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
    return wait(lock, [&] { return events_.size() >= count; });
  }

 private:
  template <typename Condition>
  bool wait(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    return harness::wait_patiently(
        [&](std::chrono::nanoseconds left) { return changed_.wait_for(lock, left, condition); },
        kTestPatience);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<transport::Event> events_;
  std::vector<base::Status> broken_;
  std::size_t streams_used_ = 0;
  mutable std::atomic<unsigned> asked_for_processors_ = 0;
};

// A rank that waits for a CPU is silent, too, so silence means death only where a test says so.
inline DriverConfig config_of(std::uint16_t rank, const std::string& address) {
  DriverConfig config;
  config.listen = SocketAddress::parse(address).value();
  config.endpoint.rank = rank;
  config.endpoint.exchange.paths = 4;
  config.endpoint.exchange.burst_packets = 16;
  config.endpoint.exchange.probe_min = base::milliseconds(2);
  config.endpoint.exchange.peer_timeout = base::seconds(3600);
  return config;
}

inline constexpr std::uint32_t kTestPacketBytes = 36 + 4 + 640 + 4;

struct Rank {
  Rank(std::uint16_t number, const DriverConfig& config)
      : rank(number), driver(TransportDriver::open(config, events).value()) {
    driver->begin_epoch({.job = kTestJob, .number = 1, .session = {}});
  }

  void send(std::uint16_t to, std::uint32_t packets, std::uint32_t operation = 0,
            transport::PayloadSource* from = nullptr,
            transport::Carrier carrier = transport::Carrier::kDatagrams) {
    driver->post([=, this](transport::Endpoint& endpoint, base::Instant now) {
      EXPECT_TRUE(endpoint
                      .send({.id = {.operation = operation, .source = rank},
                             .to = to,
                             .packets = packets,
                             .packet_bytes = kTestPacketBytes,
                             .loss = {.loss_bound_ppm = 0},
                             .source = from != nullptr ? from : &source,
                             .carrier = carrier},
                            now)
                      .ok());
    });
  }
  void expect(std::uint16_t from, std::uint32_t packets, std::uint32_t operation = 0,
              transport::Carrier carrier = transport::Carrier::kDatagrams) {
    driver->post([=, this](transport::Endpoint& endpoint, base::Instant now) {
      EXPECT_TRUE(endpoint
                      .expect({.id = {.operation = operation, .source = from},
                               .packets = packets,
                               .packet_bytes = kTestPacketBytes,
                               .planes = transport::kTestPlanes,
                               .loss = {.loss_bound_ppm = 0, .min_planes = transport::kTestPlanes},
                               .sink = &sink,
                               .carrier = carrier},
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
  explicit Two(const DriverConfig& a, const DriverConfig& b, bool help_when_idle = false)
      : zero(0, a), one(1, b) {
    EXPECT_TRUE(!help_when_idle || zero.driver->help_when_idle().ok());
    EXPECT_TRUE(zero.driver->add_peer(1, one.driver->local()).ok());
    EXPECT_TRUE(one.driver->add_peer(0, zero.driver->local()).ok());
    EXPECT_TRUE(zero.driver->start().ok() && one.driver->start().ok());
  }
  explicit Two(const std::string& address = "127.0.0.1:0")
      : Two(config_of(0, address), config_of(1, address)) {}

  Rank zero;
  Rank one;
};

inline DriverCounters counters_of(TransportDriver& driver) {
  std::promise<DriverCounters> counters;
  driver.post([&](transport::Endpoint&, base::Instant) { counters.set_value(driver.counters()); });
  return counters.get_future().get();
}

inline void expect_transfer(Two& ranks, std::uint32_t packets) {
  ranks.one.expect(0, packets);
  counters_of(*ranks.one.driver);  // by now the message is expected
  ranks.zero.send(1, packets);
  const auto report = ranks.one.events.wait_for<transport::ReceiveReport>();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->outcome, transport::Outcome::kEverything);
  EXPECT_EQ(report->whole, packets);
  EXPECT_EQ(ranks.one.sink.wrong(), 0U);
  EXPECT_TRUE(ranks.zero.events.wait_for<transport::SendReport>().has_value());
}

}  // namespace spillway::net
