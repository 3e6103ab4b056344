// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/peer/wire_watch.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "net/interfaces.h"
#include "net/system_call.h"
#include "switch/dataplane/frame.h"
#include "wire/frame_overhead.h"

namespace spillway::doctor {
namespace {

// `packet` begins with its IP header. The result has no transport if the header is not understood.
spillway_layout layout_of(base::ByteView packet) {
  spillway_layout layout = {};
  const std::uint8_t* end = packet.data() + packet.size();
  const unsigned version = packet.empty() ? 0 : packet[0] >> 4;
  if (version == 4) {
    spillway_find_ipv4(packet.data(), end, 0, &layout);
  } else if (version == 6) {
    spillway_find_ipv6(packet.data(), end, 0, &layout);
  }
  return layout;
}

constexpr std::size_t kFrameBufferBytes =
    2048;  // stale packets are short; longer ones are truncated
constexpr unsigned kMaxFramesAtOnce = 256;
constexpr __u32 kTakeAll = 0xFFFF;

using Filter = std::vector<sock_filter>;

sock_filter statement(unsigned code, __u32 value) {
  return BPF_STMT(static_cast<__u16>(code), value);
}

// Continues if the values are equal; else skips `past` instructions.
sock_filter unless_equal(__u32 value, __u8 past) {
  return BPF_JUMP(static_cast<__u16>(BPF_JMP | BPF_JEQ | BPF_K), value, 0, past);
}

sock_filter if_above_x(__u8 past) {
  return BPF_JUMP(static_cast<__u16>(BPF_JMP | BPF_JGT | BPF_X), 0, past, 0);
}

// The packet begins with its IP header. The last two instructions drop it and accept it.
Filter ipv4_filter(std::uint16_t port) {
  return {
      statement(BPF_LD | BPF_B | BPF_ABS, 9),
      unless_equal(IPPROTO_UDP, 9),
      statement(BPF_LDX | BPF_B | BPF_MSH, 0),  // X: bytes of the IP header
      statement(BPF_LD | BPF_H | BPF_IND, 2),
      unless_equal(port, 6),
      statement(BPF_LD | BPF_H | BPF_IND, 4),
      statement(BPF_ALU | BPF_ADD | BPF_X, 0),  // the end according to UDP
      statement(BPF_LDX | BPF_W | BPF_LEN, 0),
      if_above_x(3),
      statement(BPF_LD | BPF_H | BPF_ABS, 2),  // the end according to IP
      if_above_x(1),
      statement(BPF_RET | BPF_K, 0),
      statement(BPF_RET | BPF_K, kTakeAll),
  };
}

Filter ipv6_filter(std::uint16_t port) {
  constexpr __u32 kHeader = SPILLWAY_IPV6_HEADER;
  return {
      statement(BPF_LD | BPF_B | BPF_ABS, 6),
      unless_equal(IPPROTO_UDP, 9),
      statement(BPF_LD | BPF_H | BPF_ABS, kHeader + 2),
      unless_equal(port, 7),
      statement(BPF_LDX | BPF_W | BPF_LEN, 0),
      statement(BPF_LD | BPF_H | BPF_ABS, kHeader + 4),
      statement(BPF_ALU | BPF_ADD | BPF_K, kHeader),
      if_above_x(4),
      statement(BPF_LD | BPF_H | BPF_ABS, 4),
      statement(BPF_ALU | BPF_ADD | BPF_K, kHeader),
      if_above_x(1),
      statement(BPF_RET | BPF_K, 0),
      statement(BPF_RET | BPF_K, kTakeAll),
  };
}

bool attach(int fd, Filter filter) {
  const sock_fprog program = {.len = static_cast<unsigned short>(filter.size()),
                              .filter = filter.data()};
  return ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0;
}

// Bound to IPv4 or IPv6 alone, not to all protocols. So a packet is seen once, at the interface
// that hands it to IP, and never on its way out.
bool bind_to_protocol(int fd, bool ipv6) {
  sockaddr_ll address = {};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ipv6 ? ETH_P_IPV6 : ETH_P_IP);
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

std::optional<base::ByteView> stale_payload(base::ByteView packet, std::uint16_t port) {
  const spillway_layout layout = layout_of(packet);
  const std::uint8_t* end = packet.data() + packet.size();
  const std::uint8_t* udp = spillway_udp_of(packet.data(), end, &layout);
  if (udp == nullptr || spillway_load_be16(udp + 2) != port) {
    return std::nullopt;
  }
  const bool is_stale =
      layout.end > packet.size() || layout.transport + spillway_load_be16(udp + 4) > packet.size();
  return is_stale ? std::optional(packet.subspan(layout.transport + SPILLWAY_UDP_HEADER))
                  : std::nullopt;
}

WireWatch::WireWatch(net::UniqueFd fd, std::uint16_t port)
    : fd_(std::move(fd)), port_(port), buffer_(kFrameBufferBytes) {}

base::Result<WireWatch> WireWatch::open(bool ipv6, std::uint16_t port) {
  net::UniqueFd fd(::socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid() || !attach(fd.get(), ipv6 ? ipv6_filter(port) : ipv4_filter(port)) ||
      !bind_to_protocol(fd.get(), ipv6)) {
    return net::system_error("look at the wire", errno, "it needs CAP_NET_RAW");
  }
  return WireWatch(std::move(fd), port);
}

void WireWatch::drain(const std::function<void(const StalePacket&)>& handle) {
  for (unsigned i = 0; i < kMaxFramesAtOnce; ++i) {
    sockaddr_ll from = {};
    socklen_t from_size = sizeof(from);
    const ssize_t size = ::recvfrom(fd(), buffer_.data(), buffer_.size(), MSG_DONTWAIT | MSG_TRUNC,
                                    reinterpret_cast<sockaddr*>(&from), &from_size);
    if (size < 0) {
      return;
    }
    const auto length = static_cast<std::size_t>(size);
    const auto payload =
        stale_payload(base::ByteView(buffer_).first(std::min(length, buffer_.size())), port_);
    if (payload) {
      handle({.payload = *payload,
              .frame_bytes = SPILLWAY_ETHERNET_HEADER + length,
              .interface = net::interface_name(from.sll_ifindex)});
    }
  }
}

}  // namespace spillway::doctor
