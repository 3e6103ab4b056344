// SPDX-License-Identifier: Apache-2.0
//
// The fabric with UDP relays on loopback: real sockets, real time. No test asserts how long
// anything takes; waits are bounded so that a failure ends.
#include "switch/fabric/emulator.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <optional>
#include <thread>

#include "harness/slowdown.h"
#include "net/sockets.h"
#include "sim/network_testing.h"
#include "switch/fabric/frame_testing.h"

namespace spillway::fabric {
namespace {

net::SocketAddress loopback(std::uint16_t port = 0) {
  return net::SocketAddress::parse("127.0.0.1:0")->with_port(port);
}

struct Datagram {
  Bytes bytes;
  std::uint8_t tos = 0;
};

class Host {
 public:
  Host() : socket_(net::UdpSocket::open(loopback()).value()) {
    socket_.report_arrivals(false);
    socket_.size_buffers(4 << 20);
  }

  const net::SocketAddress& address() const { return socket_.local(); }

  void send(const Bytes& bytes, std::uint8_t tos, const net::SocketAddress& to) {
    const int value = tos;
    ASSERT_EQ(::setsockopt(socket_.fd(), IPPROTO_IP, IP_TOS, &value, sizeof(value)), 0);
    ASSERT_EQ(::sendto(socket_.fd(), bytes.data(), bytes.size(), 0, to.data(), to.size()),
              static_cast<ssize_t>(bytes.size()));
  }

  std::optional<Datagram> receive() {
    pollfd waiting = {socket_.fd(), POLLIN, 0};
    if (!harness::poll_patiently(waiting)) {
      return std::nullopt;
    }
    Datagram datagram;
    datagram.bytes.resize(65'536);
    std::array<std::uint64_t, 32> control{};
    iovec data = {datagram.bytes.data(), datagram.bytes.size()};
    msghdr header = {};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = sizeof(control);
    const ssize_t size = ::recvmsg(socket_.fd(), &header, 0);
    EXPECT_GT(size, 0);
    datagram.bytes.resize(static_cast<std::size_t>(size));
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
        datagram.tos = *CMSG_DATA(c);
      }
    }
    return datagram;
  }

 private:
  net::UdpSocket socket_;
};

// A port number that is free now; the fabric binds it a moment later, if nobody else does.
net::SocketAddress free_address() {
  return net::UdpSocket::open(loopback()).value().local();
}
constexpr int kPortTrials = 10;

class RelayFabric : public testing::Test {
 protected:
  void start(const std::string& text, std::optional<unsigned> writers = {}) {
    const base::Result<scenario::Scenario> scenario = scenario::parse_scenario(text);
    ASSERT_TRUE(scenario.ok()) << scenario.status().message();
    base::Status status;
    for (int trial = 0; trial < kPortTrials && !emulator; ++trial) {
      to.clear();
      std::vector<PortAttachment> ports(hosts.size());
      for (std::size_t i = 0; i < hosts.size(); ++i) {
        ports[i].listen = free_address();
        ports[i].deliver = hosts[i].address();
        to.push_back(ports[i].listen);
      }
      base::Result<std::unique_ptr<Emulator>> made = Emulator::make(*scenario, ports, writers);
      status = made.status();
      emulator = made.ok() ? std::move(made).value() : nullptr;
    }
    ASSERT_TRUE(emulator) << status.message();
    thread = std::thread([this] { EXPECT_TRUE(emulator->run().ok()); });
  }

  FabricSnapshot finish() {
    emulator->stop();
    thread.join();
    return emulator->snapshot();
  }

  void TearDown() override {
    if (thread.joinable()) {
      finish();
    }
  }

  std::vector<Host> hosts = std::vector<Host>(3);
  std::vector<net::SocketAddress> to;  // where to send packets for a host
  std::unique_ptr<Emulator> emulator;
  std::thread thread;
};

TEST_F(RelayFabric, PacketsPassWithTheirBytesAndClass) {
  start("topology one-switch hosts=3 rate=1gbit\n");
  const Bytes sent = data_payload(1'000);
  hosts[0].send(sent, 41 << 2 | 2, to[1]);
  const std::optional<Datagram> came = hosts[1].receive();
  ASSERT_TRUE(came);
  EXPECT_EQ(came->bytes, sent);
  EXPECT_EQ(came->tos, 41 << 2 | 2);
  hosts[1].send(control_payload(), 50 << 2, to[0]);
  const std::optional<Datagram> answer = hosts[0].receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->bytes, control_payload());
  const FabricSnapshot snapshot = finish();
  EXPECT_EQ(snapshot.frames_in, 2U);
  EXPECT_EQ(snapshot.frames_out, 2U);
  EXPECT_EQ(snapshot.ports.size(), 3U);
}

TEST_F(RelayFabric, WhatDoesNotFitIsTrimmedAndMarked) {
  start(
      "topology one-switch hosts=3 rate=10mbit\n"
      "switch mode=spillway queue=8k ecn=3k early-drop=0 trim=206\n");
  constexpr std::uint64_t kPackets = 20;
  std::uint64_t sent = 0;
  std::uint64_t whole = 0;
  std::uint64_t trimmed = 0;
  std::uint64_t marked = 0;
  // A sender that waits for a CPU may send more slowly than the link carries.
  harness::Limit limit;
  while ((trimmed == 0 || marked == 0) && !limit.is_over()) {
    for (std::uint64_t i = 0; i < kPackets; ++i) {
      hosts[0].send(data_payload(1'400), 1 << 2 | 2, to[2]);
      hosts[1].send(data_payload(1'400), 1 << 2 | 2, to[2]);
    }
    sent += 2 * kPackets;
    while (whole + trimmed < sent) {
      const std::optional<Datagram> came = hosts[2].receive();
      ASSERT_TRUE(came) << whole << " whole, " << trimmed << " trimmed";
      whole += came->bytes.size() == 1'400 ? 1 : 0;
      marked += (came->tos & 3) == 3 ? 1 : 0;
      if (came->bytes.size() != 1'400) {
        ++trimmed;
        EXPECT_EQ(came->bytes.size(), 206U - 42U);
        EXPECT_EQ(came->tos >> 2, SPILLWAY_DSCP_TRIMMED);
      }
    }
  }
  EXPECT_GT(whole, 0U);
  const FabricSnapshot snapshot = finish();
  std::uint64_t counted = 0;
  std::uint64_t counted_marked = 0;
  for (const PortSnapshot& port : snapshot.ports) {
    counted += port.counters.packets[SPILLWAY_REASON_TRIMMED];
    counted_marked += port.counters.packets[SPILLWAY_REASON_MARKED];
  }
  EXPECT_EQ(counted, trimmed);
  EXPECT_GT(trimmed, 0U);
  EXPECT_GT(marked, 0U);
  EXPECT_EQ(counted_marked, marked);
}

TEST_F(RelayFabric, GarbageAndStrangersAreCountedAndGoNowhere) {
  start("topology one-switch hosts=3 rate=1gbit\n");
  hosts[0].send(Bytes(500, 0xEE), 0, to[1]);
  hosts[0].send({1}, 0, to[1]);
  hosts[0].send(Bytes(9'500, 0x11), 0, to[1]);
  hosts[1].send(data_payload(500), 0, to[1]);  // from a host to itself
  Host foreign;
  foreign.send(data_payload(500, /*source=*/77), 0, to[1]);
  foreign.send(data_payload(600, /*source=*/2), 0, to[1]);  // by its rank: host 2
  const std::optional<Datagram> came = hosts[1].receive();
  ASSERT_TRUE(came);
  EXPECT_EQ(came->bytes.size(), 600U);
  const FabricSnapshot snapshot = finish();
  EXPECT_EQ(snapshot.frames_in, 6U);
  EXPECT_EQ(snapshot.foreign, 3U);
  EXPECT_EQ(snapshot.unknown, 1U);
  EXPECT_EQ(snapshot.same_port, 1U);
  EXPECT_EQ(snapshot.frames_out, 1U);
}

TEST_F(RelayFabric, ALinkFaultLosesPacketsAndTenantsTakeRoom) {
  start(
      "topology one-switch hosts=3 rate=100mbit\n"
      "fault kind=loss link=host0->switch0 share=1\n"
      "tenant from=host1 to=host2 rate=50% off=0\n");
  hosts[0].send(data_payload(500), 0, to[2]);
  hosts[1].send(data_payload(700), 0, to[2]);
  const std::optional<Datagram> came = hosts[2].receive();
  ASSERT_TRUE(came);
  EXPECT_EQ(came->bytes.size(), 700U);
  const auto has_tenant_sent = [this] {
    const FabricSnapshot now = emulator->snapshot();
    return now.ports.size() == 3 && now.ports[2].sent_packets > 1;
  };
  EXPECT_TRUE(harness::wait_until(has_tenant_sent));
  const FabricSnapshot snapshot = finish();
  EXPECT_EQ(snapshot.lost_to_faults, 1U);
  EXPECT_EQ(snapshot.frames_out, 1U);
  EXPECT_GT(snapshot.ports[2].sent_packets, 1U);  // the tenant's packets do not leave the fabric
}

TEST_F(RelayFabric, PacketsLeaveInOrderWithAnyNumberOfWriters) {
  start("topology one-switch hosts=3 rate=1gbit\n", /*writers=*/2);
  constexpr std::size_t kPackets = 600;  // more than the batches of a port hold
  constexpr std::size_t kRound = 50;     // as many as any system's socket buffers hold
  for (std::size_t first = 0; first < kPackets; first += kRound) {
    for (std::size_t i = first; i < first + kRound; ++i) {
      hosts[0].send(data_payload(300 + i), 1 << 2, to[1]);
      hosts[1].send(data_payload(300 + i), 1 << 2, to[2]);
    }
    for (const std::size_t host : {1, 2}) {
      for (std::size_t i = first; i < first + kRound; ++i) {
        const std::optional<Datagram> came = hosts[host].receive();
        ASSERT_TRUE(came) << i;
        ASSERT_EQ(came->bytes.size(), 300 + i);
      }
    }
  }
  const FabricSnapshot snapshot = finish();
  EXPECT_EQ(snapshot.frames_out, 2 * kPackets);
  EXPECT_GE(static_cast<double>(snapshot.latest_us) + 1.0, snapshot.p99_late_us);
  EXPECT_GT(snapshot.mean_late_us, 0.0);
}

TEST_F(RelayFabric, ASwitchThatAddsSendsTheSumAndTellsOfIt) {
  start(
      "topology one-switch hosts=3 rate=1gbit\n"
      "aggregate slots=8\n");
  sim::SumFields part;
  part.need = 2;
  for (const std::uint16_t rank : {1, 2}) {
    part.source = rank;
    hosts[rank].send(sim::sum_bytes(part), 41 << 2 | 2, to[0]);
  }
  const std::optional<Datagram> came = hosts[0].receive();
  ASSERT_TRUE(came);
  EXPECT_TRUE(sim::is_right_sum(came->bytes, part));
  EXPECT_EQ(sim::image_of(came->bytes).fields.ranks[0], 0b110U);
  const FabricSnapshot snapshot = finish();
  EXPECT_EQ(snapshot.frames_out, 1U);
  ASSERT_EQ(snapshot.adders.size(), 1U);
  EXPECT_EQ(snapshot.adders[0].name, "switch0");
  EXPECT_EQ(snapshot.adders[0].counters.outcomes[SPILLWAY_SUM_DID_CLAIM], 1U);
  EXPECT_EQ(snapshot.adders[0].counters.outcomes[SPILLWAY_SUM_DID_EMIT], 1U);
}

TEST_F(RelayFabric, StopEndsAnIdleRun) {
  start("topology one-switch hosts=3\n");
  EXPECT_EQ(finish().frames_in, 0U);
}

TEST(Emulator, RefusesWhatItCannotRun) {
  const auto error = [](const std::string& text, std::vector<PortAttachment> ports) {
    const auto scenario = scenario::parse_scenario(text);
    EXPECT_TRUE(scenario.ok()) << scenario.status().message();
    const auto made = Emulator::make(*scenario, ports);
    return made.ok() ? std::string() : made.status().message();
  };
  PortAttachment relay;
  relay.listen = loopback();
  relay.deliver = loopback(9);
  PortAttachment interface;
  interface.interface = "no-such-one";
  const std::string two = "topology one-switch hosts=2\n";
  EXPECT_NE(error(two, {relay}).find("1 ports for 2 hosts"), std::string::npos);
  EXPECT_NE(error(two, {relay, interface}).find("one kind"), std::string::npos);
  EXPECT_NE(error(two, {interface, interface}).find("no-such-one"), std::string::npos);
  EXPECT_NE(error(two + "fault kind=skew host=0 ppm=5\n", {relay, relay}).find("skew"),
            std::string::npos);
  EXPECT_NE(error(two + "tenant from=host0 to=host9\n", {relay, relay}).find("host9"),
            std::string::npos);
  relay.listen = loopback(net::UdpSocket::open(loopback()).value().local().port());
  EXPECT_NE(error(two, {relay, relay}).find("another process has the port"), std::string::npos);
}

}  // namespace
}  // namespace spillway::fabric
