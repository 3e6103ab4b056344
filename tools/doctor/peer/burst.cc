// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/peer/burst.h"

#include <poll.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/environment.h"
#include "net/datagram_sender.h"
#include "net/send_pacer.h"
#include "transport/route.h"
#include "wire/data_packet.h"
#include "wire/frame_overhead.h"
#include "wire/packet.h"
#include "wire/traffic_class.h"

namespace spillway::doctor {
namespace {

constexpr std::uint16_t kJob = 0xFFFF;
constexpr std::uint8_t kPriority = 0;
constexpr std::uint8_t kImportance = SPILLWAY_IMPORTANCE_MARKED;
constexpr std::size_t kMinLimit = 256;
// With nine planes, a packet of 255 quanta is longer than any MTU. One quantum is 36 bytes.
constexpr std::uint8_t kPlanes = 9;

wire::DataHeader header_of(std::uint32_t tag, std::uint8_t quanta) {
  wire::DataHeader header;
  header.stamp.job = kJob;
  header.stamp.message.operation = tag;
  header.stamp.priority = kPriority;
  header.stamp.importance = kImportance;
  header.row_log2 = SPILLWAY_MAX_ROW_LOG2;
  header.planes = kPlanes;
  header.quanta = quanta;
  header.head_bytes = 4;
  return header;
}

constexpr base::Bytes kAtOnce = base::bytes(64 * 1024);
// Bytes per packet that the rate counts beside the payload: IPv4's, for IPv6 peers too.
constexpr std::int64_t kFrameOverhead = spillway_frame_overhead(0);
constexpr int kMaxWaitMs = 100;

transport::Route burst_route() {
  return {.dscp = spillway_dscp_of_priority(kPriority),
          .ecn = spillway_ecn_of_importance(kImportance)};
}

// Sends as much as leaves at once, and waits until the socket has taken it.
base::Bytes send_some(net::DatagramSender& sender, const std::vector<std::uint8_t>& packet,
                      const transport::Route& route) {
  base::Bytes added;
  while (sender.has_room() && added < kAtOnce) {
    std::copy(packet.begin(), packet.end(), sender.room().begin());
    sender.commit(route, packet.size());
    added += base::bytes(static_cast<std::int64_t>(packet.size()) + kFrameOverhead);
  }
  while (!sender.flush()) {
    pollfd writable = {.fd = sender.waiting_fd(), .events = POLLOUT, .revents = 0};
    (void)::poll(&writable, 1, kMaxWaitMs);
  }
  return added;
}

}  // namespace

std::uint8_t burst_tos() {
  return burst_route().tos();
}

std::vector<std::uint8_t> make_burst_packet(std::uint32_t tag, std::size_t limit) {
  SPILLWAY_CHECK(limit >= kMinLimit);
  std::uint8_t quanta = 255;
  while (header_of(tag, quanta).packet_size() > limit) {
    --quanta;
  }
  const wire::DataHeader header = header_of(tag, quanta);
  const std::vector<std::uint8_t> planes(header.plane_bytes());
  std::vector<std::uint8_t> packet(header.packet_size());
  wire::write_data_packet(header, planes, wire::PacketAuth::crc32c(0), packet);
  return packet;
}

std::optional<std::uint32_t> burst_tag_of(base::ByteView payload) {
  constexpr std::uint8_t kVersionType = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_DATA;
  constexpr std::size_t kTagAt = offsetof(spillway_packet_header, operation);
  constexpr std::size_t kJobAt = offsetof(spillway_packet_header, job);
  if (payload.size() < kTagAt + sizeof(std::uint32_t) || payload[0] != kVersionType ||
      base::load_le<std::uint16_t>(&payload[kJobAt]) != kJob) {
    return std::nullopt;
  }
  return base::load_le<std::uint32_t>(&payload[kTagAt]);
}

base::Result<BurstSent> send_burst(const BurstOptions& options) {
  const base::Result<net::Offloads> wanted = net::offloads_from(base::Environment::of_process());
  base::Result<net::UdpSocket> socket =
      net::UdpSocket::open(net::SocketAddress::any(options.peer.family()));
  if (!wanted.ok() || !socket.ok()) {
    return wanted.ok() ? socket.status() : wanted.status();
  }
  std::vector<net::UdpSocket> sockets;
  sockets.push_back(std::move(socket).value());
  net::DatagramSender sender(std::move(sockets), net::available_offloads(*wanted));
  const std::vector<std::uint8_t> packet = make_burst_packet(options.tag, options.payload_limit);
  const transport::Route route = burst_route();
  sender.set_address(route.peer, options.peer);
  const base::MonotonicClock clock;
  net::SendPacer pacer(options.rate, kAtOnce);
  const base::Instant end = clock.now() + options.length;
  for (base::Instant now = clock.now(); now < end; now = clock.now()) {
    if (pacer.may_send(now)) {
      pacer.sent(send_some(sender, packet, route), now);
    } else {
      std::this_thread::sleep_for(std::chrono::nanoseconds((pacer.next() - now).count()));
    }
  }
  return BurstSent{.packets = sender.counters().datagrams, .payload_bytes = packet.size()};
}

}  // namespace spillway::doctor
