// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/loopback/flood.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "net/send_pacer.h"
#include "net/system_call.h"
#include "net/udp_socket.h"
#include "tools/bench/command_error.h"
#include "tools/bench/loopback/process_pair.h"
#include "tools/bench/plane_payload.h"

namespace spillway::bench {
namespace {

constexpr unsigned kDatagramBytes = 1452;
constexpr std::uint64_t kGarbageKey = 0xBADF00D;
constexpr int kBatch = 16;

std::vector<std::uint8_t> random_datagram(base::RandomSequence& random) {
  std::vector<std::uint8_t> bytes(1 + random.next_word() % kDatagramBytes);
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(random.next_word());
  }
  return bytes;
}

// Well-formed packets with checks made under another job's key.
std::vector<std::vector<std::uint8_t>> forged_datagrams(std::uint16_t job) {
  const wire::PacketAuth auth = packetize::seeded_auth({.id = job, .epoch = 1, .seed = 999});
  const packetize::PacketPlan plan = plan_of_size(100'000, kDatagramBytes, 0);
  PlaneSource source(plan);
  std::vector<std::vector<std::uint8_t>> datagrams;
  for (std::uint16_t packet = 0; packet < 16; ++packet) {
    wire::DataStamp stamp;
    stamp.job = job;
    stamp.epoch = 1;
    stamp.destination = 1;
    stamp.number = packet + 1U;
    stamp.packet = packet;
    std::vector<std::uint8_t> bytes(SPILLWAY_MAX_PACKET);
    bytes.resize(source.write(stamp, auth, bytes));
    datagrams.push_back(std::move(bytes));
  }
  return datagrams;
}

std::vector<std::vector<std::uint8_t>> unwanted_datagrams() {
  std::vector<std::vector<std::uint8_t>> all = forged_datagrams(/*job=*/1);
  for (std::vector<std::uint8_t>& foreign : forged_datagrams(/*job=*/77)) {
    all.push_back(std::move(foreign));
  }
  base::RandomSequence random(kGarbageKey);
  for (int i = 0; i < 16; ++i) {
    all.push_back(random_datagram(random));
  }
  return all;
}

[[noreturn]] void flood(const net::SocketAddress& target, base::BitRate rate) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  net::name_thread("flood");
  cpu_set_t all;  // the parent is pinned to the receiver's core
  std::memset(&all, 0xFF, sizeof(all));
  ::sched_setaffinity(0, sizeof(all), &all);
  const net::UdpSocket socket = value_or_throw(net::UdpSocket::open(target.with_port(0)));
  const std::vector<std::vector<std::uint8_t>> datagrams = unwanted_datagrams();
  net::SendPacer pacer(rate, base::bytes(kBatch * kDatagramBytes));
  const base::MonotonicClock clock;
  for (std::size_t next = 0;;) {
    const base::Instant now = clock.now();
    if (!pacer.may_send(now)) {
      sleep_until(pacer.next());
      continue;
    }
    for (int i = 0; i < kBatch; ++i) {
      const std::vector<std::uint8_t>& bytes = datagrams[next++ % datagrams.size()];
      ::sendto(socket.fd(), bytes.data(), bytes.size(), 0, target.data(), target.size());
      pacer.sent(base::bytes(static_cast<std::int64_t>(bytes.size())), now);
    }
  }
}

}  // namespace

Flood::Flood(const net::SocketAddress& target, base::BitRate rate) : pid_(::fork()) {
  if (pid_ < 0) {
    throw CommandError("cannot start a process");
  }
  if (pid_ == 0) {
    flood(target, rate);
  }
}

Flood::~Flood() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

}  // namespace spillway::bench
