// SPDX-License-Identifier: Apache-2.0
//
// Sums through an attached switch, between real sockets in network namespaces joined to it by veth
// pairs. This shows what test runs of programs cannot: frames that are absorbed, sums that arrive,
// results that become several, a FLUSH that grows on its way back.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>
#include <thread>

#include "harness/slowdown.h"
#include "net/system_call.h"
#include "switch/dataplane/port_config.h"
#include "switch/dataplane/sum_testing.h"
#include "switch/kernel/kernel_switch.h"
#include "switch/kernel/measure/live_switch.h"

namespace spillway::kernel {
namespace {

constexpr std::uint8_t kHosts = 4;  // rank 0 owns all chunks
constexpr std::uint16_t kUdpPort = 7077;

int patience_ms() {
  const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(
      harness::patience(std::chrono::seconds(60)));
  return static_cast<int>(patience.count());
}

bool shell(const std::string& command) {
  return std::system(("{ " + command + "; } >/dev/null 2>&1").c_str()) == 0;
}

net::UniqueFd make_namespace() {
  return std::async(
             std::launch::async,
             [] {
               return ::unshare(CLONE_NEWNET) == 0
                          ? net::UniqueFd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC))
                          : net::UniqueFd();
             })
      .get();
}

template <typename Work>
auto inside(const net::UniqueFd& space, const Work& work) {
  return std::async(std::launch::async,
                    [&] {
                      EXPECT_EQ(::setns(space.get(), CLONE_NEWNET), 0);
                      return work();
                    })
      .get();
}

sockaddr_in address_of(unsigned host) {
  sockaddr_in made = {};
  made.sin_family = AF_INET;
  made.sin_port = htons(kUdpPort);
  made.sin_addr.s_addr = htonl(0x0A090000U + host + 1);
  return made;
}

// No UDP checksums: on a veth, nothing fills in checksums that are left to a card.
net::UniqueFd bound_socket(unsigned host) {
  net::UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  const sockaddr_in at = address_of(host);
  EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_NO_CHECK, &on, sizeof(on)), 0);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  return fd;
}

// A host with a socket, at the far end of port `sw<number>`. A veth receives redirected frames only
// if it has a program.
class Host {
 public:
  bool make(unsigned number, const ProbePrograms& probes) {
    number_ = number;
    space_ = make_namespace();
    const std::string join = fmt::format(
        "ip link add sw{0} type veth peer name host{0} address 02:00:00:00:09:0{0} "
        "netns /proc/{1}/fd/{2}; ip link set sw{0} up",
        number, ::getpid(), space_.get());
    return space_.valid() && shell(join) && inside(space_, [&] { return set_up(probes); });
  }

  void send(const dataplane::SumPacket& packet, unsigned to) const {
    std::vector<std::uint8_t> bytes(spillway_sum_packet_size(packet.header().kind));
    std::memcpy(bytes.data(), &packet.image, sizeof(packet.image));
    if (bytes.size() > sizeof(packet.image)) {
      std::memcpy(&bytes[sizeof(packet.image)], packet.words.data(), SPILLWAY_SUM_WORD_BYTES);
    }
    const sockaddr_in peer = address_of(to);
    EXPECT_EQ(::sendto(socket_.get(), bytes.data(), bytes.size(), 0,
                       reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)),
              static_cast<ssize_t>(bytes.size()));
  }

  std::optional<dataplane::SumPacket> receive() const {
    pollfd waiting = {socket_.get(), POLLIN, 0};
    std::array<std::uint8_t, 2048> bytes;
    if (::poll(&waiting, 1, patience_ms()) != 1) {
      return std::nullopt;
    }
    const ssize_t size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (size != static_cast<ssize_t>(SPILLWAY_SUM_PACKET)) {
      return std::nullopt;
    }
    dataplane::SumPacket packet;
    std::memcpy(&packet.image, bytes.data(), sizeof(packet.image));
    std::memcpy(packet.words.data(), &bytes[sizeof(packet.image)], SPILLWAY_SUM_WORD_BYTES);
    return packet;
  }

 private:
  bool set_up(const ProbePrograms& probes) {
    std::string commands = fmt::format(
        "ip addr add 10.9.0.{1}/24 dev host{0} && ip link set host{0} up", number_, number_ + 1);
    for (unsigned other = 0; other < kHosts; ++other) {
      if (other != number_) {
        commands += fmt::format(" && ip neigh add 10.9.0.{} lladdr 02:00:00:00:09:0{} dev host{}",
                                other + 1, other, number_);
      }
    }
    const base::Result<Interface> interface =
        shell(commands) ? find_interface(fmt::format("host{}", number_))
                        : base::Result<Interface>(base::invalid_argument("no host"));
    if (!interface.ok() || !attach_xdp(probes.fd(Probe::kPassXdp), *interface).ok()) {
      return false;
    }
    socket_ = bound_socket(number_);
    return true;
  }

  unsigned number_ = 0;
  net::UniqueFd space_;
  net::UniqueFd socket_;
};

SwitchPlan plan_of_hosts() {
  SwitchPlan plan;
  for (unsigned host = 0; host < kHosts; ++host) {
    plan.ports.push_back({.name = fmt::format("switch0->host{}", host),
                          .interface = fmt::format("sw{}", host),
                          .config = dataplane::default_port_config(SPILLWAY_PORT_SPILLWAY),
                          .link = {.rate = 0xFFFFFFFF, .lost_of_2_32 = 0}});
  }
  plan.adder.config = {.slots = 64,
                       .lease_us = 0xFFFFFFFF,  // the kernel's clock keeps running
                       .pools = 1,
                       .policy = SPILLWAY_SUM_PREEMPTIVE,
                       .level = 0,
                       .reserved = {}};
  plan.adder.limits = {{.job = 1, .slots = 32}};
  return plan;
}

class World {
 public:
  // False: not permitted, or `ip` is missing.
  bool make(Hook hook) {
    base::Result<ProbePrograms> probes = ProbePrograms::load();
    if (::unshare(CLONE_NEWNET) != 0 || !probes.ok()) {
      return false;
    }
    probes_.emplace(std::move(probes).value());
    for (unsigned host = 0; host < kHosts; ++host) {
      if (!hosts[host].make(host, *probes_)) {
        return false;
      }
    }
    base::Result<std::unique_ptr<KernelSwitch>> attached =
        KernelSwitch::attach(plan_of_hosts(), {.hook = hook});
    EXPECT_TRUE(attached.ok()) << attached.status().message();
    if (!attached.ok()) {
      return false;
    }
    center = std::move(attached).value();
    for (std::uint8_t host = 0; host < kHosts; ++host) {
      const spillway_station station = {.address = {2, 0, 0, 0, 9, host}, .vlan = 0};
      EXPECT_TRUE(center->add_station(station, host).ok());
    }
    return true;
  }

  std::uint64_t count(spillway_sum_outcome outcome) const {
    return center->snapshot().adders.front().counters.outcomes[outcome];
  }
  // False: timed out before the switch did that so often.
  bool wait_for_count(spillway_sum_outcome outcome, std::uint64_t least) const {
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms());
    while (count(outcome) < least && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    return count(outcome) >= least;
  }

  std::array<Host, kHosts> hosts;
  std::unique_ptr<KernelSwitch> center;

 private:
  std::optional<ProbePrograms> probes_;
};

void expect_sum_of(const std::optional<dataplane::SumPacket>& packet,
                   std::initializer_list<unsigned> ranks) {
  ASSERT_TRUE(packet.has_value());
  spillway_sum_header expected = {};
  dataplane::put_ranks(expected, ranks);
  EXPECT_EQ(packet->header().ranks[0], expected.ranks[0]);
  for (const std::size_t word : {std::size_t{0}, std::size_t{SPILLWAY_SUM_WORDS - 1}}) {
    std::uint64_t sum = 0;
    for (const unsigned rank : ranks) {
      sum += (rank + 1) * 1000003ULL + word;
    }
    EXPECT_EQ(packet->words[word], sum);
  }
}

dataplane::SumPacket part(std::uint16_t chunk, unsigned rank) {
  return dataplane::sum_packet(SPILLWAY_SUM_PART, chunk, {rank}, 3);
}

std::uint32_t slot_of(const dataplane::SumPacket& packet) {
  const spillway_sum_config config = plan_of_hosts().adder.config;
  const spillway_sum_job job = {};
  const spillway_sum_key key = spillway_sum_key_of(&packet.image);
  return spillway_sum_slot_of(&config, &job, &key);
}

// An evicted sum may be for the sender of the packet that takes the slot.
void evict_to_the_sender(World& world) {
  dataplane::SumPacket held = part(100, 1);
  held.header().owner = 2;
  dataplane::SumPacket urgent = part(0, 2);
  urgent.header().urgency = 200;
  while (slot_of(urgent) != slot_of(held)) {
    ++urgent.header().common.packet;
  }
  const std::uint64_t claims = world.count(SPILLWAY_SUM_DID_CLAIM);
  world.hosts[1].send(held, 2);
  ASSERT_TRUE(world.wait_for_count(SPILLWAY_SUM_DID_CLAIM, claims + 1));
  world.hosts[2].send(urgent, 0);
  const std::optional<dataplane::SumPacket> evicted = world.hosts[2].receive();
  expect_sum_of(evicted, {1});
  EXPECT_EQ(evicted->header().marks,
            SPILLWAY_SUM_ADDED | SPILLWAY_SUM_PARTIAL | SPILLWAY_SUM_EVICTED);
  EXPECT_EQ(world.center->snapshot().same_port, 0U);
}

void exchange(World& world) {
  for (unsigned rank = 1; rank < kHosts; ++rank) {
    world.hosts[rank].send(part(0, rank), 0);
  }
  const std::optional<dataplane::SumPacket> sum = world.hosts[0].receive();
  expect_sum_of(sum, {1, 2, 3});
  EXPECT_EQ(sum->header().marks, SPILLWAY_SUM_ADDED);
  EXPECT_EQ(world.count(SPILLWAY_SUM_DID_ADD), 1U);

  dataplane::SumPacket result = dataplane::sum_packet(SPILLWAY_SUM_RESULT, 0, {0}, 3);
  result.header().marks = SPILLWAY_SUM_MULTIPLY;
  result.header().recipients[0] = 0b1110;
  result.header().common.destination = 1;
  world.hosts[0].send(result, 1);
  for (unsigned rank = 1; rank < kHosts; ++rank) {
    const std::optional<dataplane::SumPacket> copy = world.hosts[rank].receive();
    expect_sum_of(copy, {0});
    EXPECT_EQ(copy->header().common.destination, rank);
    EXPECT_EQ(copy->header().marks, 0);
  }
  EXPECT_EQ(world.center->snapshot().adders.front().counters.copies, 3U);

  world.hosts[1].send(part(1, 1), 0);
  world.hosts[2].send(part(1, 2), 0);
  dataplane::SumPacket flush = dataplane::sum_packet(SPILLWAY_SUM_FLUSH, 1, {1, 2, 3}, 3);
  flush.header().common.source = 0;
  flush.header().common.destination = 3;
  ASSERT_TRUE(world.wait_for_count(SPILLWAY_SUM_DID_ADD, 2));
  world.hosts[0].send(flush, 3);
  const std::optional<dataplane::SumPacket> partial = world.hosts[0].receive();
  expect_sum_of(partial, {1, 2});
  EXPECT_EQ(partial->header().marks, SPILLWAY_SUM_ADDED | SPILLWAY_SUM_PARTIAL);
  EXPECT_EQ(partial->header().kind, SPILLWAY_SUM_PART);
}

class SwitchSumsLive : public testing::TestWithParam<Hook> {};

TEST_P(SwitchSumsLive, AreAddedMultipliedFlushedAndEvicted) {
  bool is_made = false;
  std::thread([&is_made] {
    World world;
    is_made = world.make(GetParam());
    if (is_made) {
      exchange(world);
      const sim::AdderTotals totals = world.center->snapshot().adders.front();
      EXPECT_EQ(totals.name, "switch0");
      ASSERT_EQ(totals.jobs.size(), 1U);
      EXPECT_EQ(totals.jobs[0].limit, 32U);
      EXPECT_EQ(totals.jobs[0].held, 0U);
      EXPECT_EQ(totals.counters.outcomes[SPILLWAY_SUM_DID_FLUSH], 1U);
      evict_to_the_sender(world);
    }
  }).join();
  if (!is_made) {
    GTEST_SKIP() << "needs CAP_BPF, CAP_NET_ADMIN and `ip`";
  }
}

INSTANTIATE_TEST_SUITE_P(Hooks, SwitchSumsLive, testing::Values(Hook::kXdp, Hook::kTcBoth));

}  // namespace
}  // namespace spillway::kernel
