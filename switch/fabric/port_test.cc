// SPDX-License-Identifier: Apache-2.0
//
// The fabric between two network namespaces, joined to it by veth pairs: what real hosts' kernels
// send arrives intact with checksum offload on. Runs in a process of its own with fresh user and
// network namespaces; skipped if that is not permitted.
#include "switch/fabric/port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <future>
#include <numeric>
#include <thread>

#include "harness/slowdown.h"
#include "net/sockets.h"
#include "net/system_call.h"
#include "sim/scenario/scenario.h"
#include "switch/fabric/emulator.h"
#include "switch/fabric/frame_testing.h"
#include "switch/fabric/transmit_queue.h"

namespace spillway::fabric {
namespace {

constexpr int kNotPermitted = 77;

bool shell(const std::string& command) {
  return std::system(("{ " + command + "; } >/dev/null 2>&1").c_str()) == 0;
}

// A network namespace, kept alive by a descriptor from the thread that made it.
net::UniqueFd make_namespace() {
  net::UniqueFd fd;
  std::thread([&fd] {
    if (::unshare(CLONE_NEWNET) == 0) {
      fd = net::UniqueFd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    }
  }).join();
  return fd;
}

// Calls `work` in the namespace.
template <typename T>
T inside(const net::UniqueFd& space, const std::function<T()>& work) {
  return std::async(std::launch::async,
                    [&] {
                      EXPECT_EQ(::setns(space.get(), CLONE_NEWNET), 0);
                      return work();
                    })
      .get();
}

// Namespaces 0 and 1 with 10.9.0.1 and 10.9.0.2; their far ends are sw0 and sw1 here.
bool make_hosts(std::array<net::UniqueFd, 2>& hosts) {
  for (int i = 0; i < 2; ++i) {
    hosts[i] = make_namespace();
    const std::string n = std::to_string(i);
    if (!hosts[i].valid() ||
        !shell("ip link add sw" + n + " type veth peer name host" + n + " netns /proc/" +
               std::to_string(::getpid()) + "/fd/" + std::to_string(hosts[i].get())) ||
        !shell("sysctl -w net.ipv6.conf.sw" + n + ".disable_ipv6=1; ip link set sw" + n + " up")) {
      return false;
    }
    const bool is_set = inside<bool>(hosts[i], [&n, i] {
      // TCP segments are cut to the MTU by the kernel; checksums are left to the card.
      return shell("ip link set lo up") &&
             shell("ip link set host" + n + " gso_max_segs 1 gso_max_size 1500") &&
             shell("ip addr add 10.9.0." + std::to_string(i + 1) + "/24 dev host" + n) &&
             shell("ip link set host" + n + " up");
    });
    if (!is_set) {
      return false;
    }
  }
  return true;
}

sockaddr_in address(int host, std::uint16_t port) {
  sockaddr_in made = {};
  made.sin_family = AF_INET;
  made.sin_port = htons(port);
  made.sin_addr.s_addr = htonl(0x0A090000U + static_cast<std::uint32_t>(host) + 1);
  return made;
}

net::UniqueFd bound_socket(int host, std::uint16_t port, int type) {
  net::UniqueFd fd(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  const sockaddr_in at = address(host, port);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  return fd;
}

Bytes receive_all(int fd, std::size_t size) {
  Bytes all(size);
  std::size_t got = 0;
  while (got < size) {
    pollfd waiting = {fd, POLLIN, 0};
    const ssize_t part =
        harness::poll_patiently(waiting) ? ::recv(fd, &all[got], size - got, 0) : 0;
    if (part <= 0) {
      break;
    }
    got += static_cast<std::size_t>(part);
  }
  all.resize(got);
  return all;
}

void exchange_datagrams(std::array<net::UniqueFd, 2>& hosts) {
  const net::UniqueFd a =
      inside<net::UniqueFd>(hosts[0], [] { return bound_socket(0, 6000, SOCK_DGRAM); });
  const net::UniqueFd b =
      inside<net::UniqueFd>(hosts[1], [] { return bound_socket(1, 6000, SOCK_DGRAM); });
  const Bytes sent = data_payload(1'400);
  const sockaddr_in to = address(1, 6000);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(::sendto(a.get(), sent.data(), sent.size(), 0, reinterpret_cast<const sockaddr*>(&to),
                       sizeof(to)),
              1'400);
    EXPECT_EQ(receive_all(b.get(), sent.size()), sent);
  }
}

void transfer_over_tcp(std::array<net::UniqueFd, 2>& hosts) {
  const net::UniqueFd listener =
      inside<net::UniqueFd>(hosts[1], [] { return bound_socket(1, 6001, SOCK_STREAM); });
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  const net::UniqueFd client =
      inside<net::UniqueFd>(hosts[0], [] { return bound_socket(0, 6001, SOCK_STREAM); });
  const sockaddr_in to = address(1, 6001);
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  const net::UniqueFd server(::accept(listener.get(), nullptr, nullptr));
  Bytes sent(2'000'000);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<std::uint8_t>(i * 31 + i / 251);
  }
  std::thread sender([&] {
    EXPECT_EQ(::send(client.get(), sent.data(), sent.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(sent.size()));
  });
  EXPECT_TRUE(receive_all(server.get(), sent.size()) == sent);
  ::shutdown(server.get(), SHUT_RDWR);
  sender.join();
}

void run_fabric() {
  std::array<net::UniqueFd, 2> hosts;
  ASSERT_TRUE(make_hosts(hosts));
  const auto scenario = scenario::parse_scenario(
      "topology one-switch hosts=2 rate=1gbit delay=5us\nswitch mode=spillway queue=256k\n");
  ASSERT_TRUE(scenario.ok());
  std::vector<PortAttachment> ports(2);
  ports[0].interface = "sw0";
  ports[1].interface = "sw1";
  auto emulator = Emulator::make(*scenario, ports);
  ASSERT_TRUE(emulator.ok()) << emulator.status().message();
  std::thread thread([&] { EXPECT_TRUE(emulator.value()->run().ok()); });
  exchange_datagrams(hosts);
  transfer_over_tcp(hosts);
  emulator.value()->stop();
  thread.join();
  const FabricSnapshot snapshot = emulator.value()->snapshot();
  EXPECT_GT(snapshot.frames_out, 1'000U);
  EXPECT_EQ(snapshot.oversized, 0U);
}

TEST(Veth, DatagramsAndTcpPassBetweenNamespaces) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves no namespaces
    const bool permitted =
        ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    if (!permitted || !shell("ip link add probe0 type veth peer name probe1")) {
      ::_exit(kNotPermitted);
    }
    run_fabric();
    std::fflush(nullptr);
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotPermitted) {
    GTEST_SKIP() << "no namespaces with veth pairs here";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see above";
}

// ------------------------------------------------------------------ attachments

base::Result<std::vector<PortAttachment>> attachments(const std::string& lines) {
  const auto scenario = scenario::parse_scenario("topology one-switch hosts=2\n" + lines);
  EXPECT_TRUE(scenario.ok()) << scenario.status().message();
  const auto topology = scenario::build_topology(*scenario);
  EXPECT_TRUE(topology.ok()) << topology.status().message();
  return port_attachments(*scenario, *topology);
}

void expect_error(const std::string& lines, const std::vector<std::string>& parts) {
  const auto result = attachments(lines);
  ASSERT_FALSE(result.ok()) << lines;
  for (const std::string& part : parts) {
    EXPECT_NE(result.status().message().find(part), std::string::npos)
        << part << " not in: " << result.status().message();
  }
}

TEST(PortAttachments, ComeInTheTopologysOrder) {
  const auto result =
      attachments("port host=host1 interface=veth1\nport host=host0 interface=veth0\n");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ((*result)[0].interface, "veth0");
  EXPECT_EQ((*result)[1].interface, "veth1");
}

TEST(PortAttachments, ARelayHasTwoAddresses) {
  const auto result = attachments(
      "port host=host0 listen=127.0.0.1:7100 deliver=127.0.0.1:7000\n"
      "port host=host1 listen=[::1]:7101 deliver=[::1]:7001\n");
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ((*result)[0].listen.to_string(), "127.0.0.1:7100");
  EXPECT_EQ((*result)[1].deliver.to_string(), "[::1]:7001");
}

TEST(PortAttachments, ErrorsNameTheLineAndWhatToDo) {
  expect_error("port host=host0 interface=a\n", {"host1", "interface=NAME"});
  expect_error("port host=nobody interface=a\n", {"line 2", "nobody", "host0 to host1"});
  expect_error("port host=host0 interface=a\nport host=host0 interface=b\n", {"line 3", "second"});
  expect_error("port host=host0 listen=127.0.0.1:1\n", {"line 2", "deliver="});
  expect_error("port host=host0 listen=here deliver=127.0.0.1:1\n", {"line 2", "listen", "here"});
}

// ------------------------------------------------------------------ the transmit queue

TEST(Lateness, OfNothingIsNothing) {
  EXPECT_EQ(Lateness().mean(), base::Duration());
  EXPECT_EQ(Lateness().percentile(99), base::Duration());
}

TEST(Lateness, APercentileIsAtMostAQuarterAboveTheTruth) {
  for (std::int64_t us = 1; us < 10'000'000; us = us * 21 / 20 + 1) {
    Lateness lateness;
    for (int i = 0; i < 99; ++i) {
      lateness.add(base::microseconds(us));
    }
    lateness.add(base::seconds(1'000));
    const double told = base::microseconds_of(lateness.percentile(99));
    EXPECT_GE(told, static_cast<double>(us));
    EXPECT_LE(told, 1.26 * static_cast<double>(us)) << us;
    EXPECT_EQ(lateness.latest(), base::seconds(1'000));
  }
}

TEST(Lateness, AddsUp) {
  Lateness one;
  Lateness other;
  one.add(base::microseconds(10));
  other.add(base::microseconds(30));
  other.add(base::microseconds(-5));  // early is on time
  one.add(other);
  EXPECT_EQ(one.count(), 3U);
  EXPECT_EQ(one.mean(), base::nanoseconds(40'000 / 3));
  EXPECT_EQ(one.latest(), base::microseconds(30));
  EXPECT_EQ(one.percentile(100), base::microseconds(30));
  EXPECT_LE(one.percentile(1), base::microseconds(1));
}

TEST(Lateness, WhatIsLaterThanAllBucketsIsInTheLast) {
  Lateness lateness;
  lateness.add(base::seconds(100'000));
  EXPECT_GT(lateness.percentile(50), base::seconds(100));
}

TEST(Writers, AreAQuarterOfTheCoresAndNoMoreThanPorts) {
  EXPECT_EQ(default_writers(4, 1), 0U);
  EXPECT_EQ(default_writers(4, 3), 0U);
  EXPECT_EQ(default_writers(4, 4), 1U);
  EXPECT_EQ(default_writers(4, 16), 4U);
  EXPECT_EQ(default_writers(4, 128), 4U);
  EXPECT_EQ(default_writers(64, 128), 32U);
}

class OutletTest : public testing::Test {
 protected:
  net::UdpSocket from_ =
      net::UdpSocket::open(net::SocketAddress::parse("127.0.0.1:0").value()).value();
  net::UdpSocket to_ =
      net::UdpSocket::open(net::SocketAddress::parse("127.0.0.1:0").value()).value();
};

TEST_F(OutletTest, AWriterThatGoesHasWrittenWhatItWasHanded) {
  to_.size_buffers(4 << 20);
  TransmitQueue queue(100, to_.local());
  constexpr std::uint8_t kMessages = 200;
  {
    Writer writer;
    queue.use(writer);
    for (std::uint8_t i = 0; i < kMessages; ++i) {
      queue.add(from_.fd(), 1, 0, base::Instant())[0] = i;
    }
    queue.flush(from_.fd());
  }
  EXPECT_EQ(queue.counters().sent, kMessages);
  EXPECT_EQ(queue.counters().late.count(), kMessages);
  for (std::uint8_t i = 0; i < kMessages; ++i) {
    std::uint8_t byte = 0;
    ASSERT_EQ(::recv(to_.fd(), &byte, 1, MSG_DONTWAIT), 1);
    EXPECT_EQ(byte, i);
  }
}

TEST_F(OutletTest, WithoutAWriterAFlushIsWritten) {
  TransmitQueue queue(100, to_.local());
  queue.add(from_.fd(), 3, 0, base::Instant());
  EXPECT_EQ(queue.counters().sent, 0U);
  queue.flush(from_.fd());
  queue.wait_until_written();
  EXPECT_EQ(queue.counters().sent, 1U);
}

}  // namespace

}  // namespace spillway::fabric
