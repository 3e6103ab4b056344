// SPDX-License-Identifier: Apache-2.0
#include "doctor/burst.h"

#include <poll.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "doctor/burst_packet.h"
#include "net/datagram_sender.h"
#include "net/send_pacer.h"

namespace spillway::doctor {
namespace {

constexpr base::Bytes kAtOnce = base::bytes(64 * 1024);
constexpr std::int64_t kFrameOverhead = 14 + 20 + 8;  // what the rate counts beside the payload
constexpr int kMostWaitMs = 100;

net::SocketAddress any_of_family(const net::SocketAddress& peer) {
  return peer.is_ipv6() ? net::SocketAddress::parse("[::]:0").value() : net::SocketAddress();
}

// As much as leaves at once; waits until the socket has taken it.
base::Bytes send_some(net::DatagramSender& sender, const std::vector<std::uint8_t>& packet,
                      const net::DatagramTarget& target) {
  base::Bytes added;
  while (sender.has_room() && added < kAtOnce) {
    std::copy(packet.begin(), packet.end(), sender.room().begin());
    sender.commit(target, packet.size());
    added += base::bytes(static_cast<std::int64_t>(packet.size()) + kFrameOverhead);
  }
  while (!sender.flush()) {
    pollfd writable = {.fd = sender.waiting_fd(), .events = POLLOUT, .revents = 0};
    (void)::poll(&writable, 1, kMostWaitMs);
  }
  return added;
}

}  // namespace

base::Result<BurstSent> send_burst(const BurstOptions& options) {
  base::Result<net::UdpSocket> socket = net::UdpSocket::open(any_of_family(options.peer));
  if (!socket.ok()) {
    return socket.status();
  }
  std::vector<net::UdpSocket> sockets;
  sockets.push_back(std::move(socket).value());
  net::DatagramSender sender(std::move(sockets),
                             net::available_offloads(net::offloads_from_environment()));
  const std::vector<std::uint8_t> packet = make_burst_packet(options.tag, options.payload_limit);
  const net::DatagramTarget target = {.tos = burst_tos(), .address = &options.peer};
  const base::MonotonicClock clock;
  net::SendPacer pacer(options.rate, kAtOnce);
  const base::Instant end = clock.now() + options.length;
  for (base::Instant now = clock.now(); now < end; now = clock.now()) {
    if (pacer.may_send(now)) {
      pacer.sent(send_some(sender, packet, target), now);
    } else {
      std::this_thread::sleep_for(std::chrono::nanoseconds((pacer.next() - now).count()));
    }
  }
  return BurstSent{.packets = sender.counters().datagrams, .payload_bytes = packet.size()};
}

}  // namespace spillway::doctor
