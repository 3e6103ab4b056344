// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include <vector>

#include "harness/slowdown.h"
#include "tools/doctor/probe_socket.h"
#include "tools/doctor/trim_probe.h"

namespace spillway::doctor {

namespace {

using Bytes = std::vector<std::uint8_t>;

void store_be(Bytes& bytes, std::size_t at, std::size_t value) {
  bytes[at] = static_cast<std::uint8_t>(value >> 8);
  bytes[at + 1] = static_cast<std::uint8_t>(value);
}

// Between loopback addresses: carries `payload` but claims `promised` bytes of it.
Bytes ipv4_packet(std::uint16_t port, base::ByteView payload, std::size_t promised) {
  Bytes packet(28 + payload.size());
  packet[0] = 0x45;
  store_be(packet, 2, 28 + promised);
  packet[8] = 64;
  packet[9] = IPPROTO_UDP;
  packet[12] = packet[16] = 127;
  packet[15] = packet[19] = 1;
  store_be(packet, 20, 999);
  store_be(packet, 22, port);
  store_be(packet, 24, 8 + promised);
  std::copy(payload.begin(), payload.end(), packet.begin() + 28);
  return packet;
}

Bytes ipv6_packet(std::uint16_t port, base::ByteView payload, std::size_t promised) {
  Bytes packet(48 + payload.size());
  packet[0] = 0x60;
  store_be(packet, 4, 8 + promised);
  packet[6] = IPPROTO_UDP;
  packet[7] = 64;
  packet[23] = packet[39] = 1;
  store_be(packet, 40, 999);
  store_be(packet, 42, port);
  store_be(packet, 44, 8 + promised);
  std::copy(payload.begin(), payload.end(), packet.begin() + 48);
  return packet;
}

TEST(StalePacket, IsOneThatPromisesMoreThanIsThere) {
  const Bytes payload(100, 7);
  for (const auto make : {ipv4_packet, ipv6_packet}) {
    const Bytes cut = make(7078, payload, 1400);
    const auto stale = stale_payload(cut, 7078);
    ASSERT_TRUE(stale);
    EXPECT_EQ(Bytes(stale->begin(), stale->end()), payload);
    EXPECT_FALSE(stale_payload(make(7078, payload, 100), 7078));
    EXPECT_FALSE(stale_payload(make(7078, payload, 90), 7078));  // padded, not cut
    EXPECT_FALSE(stale_payload(make(7077, payload, 1400), 7078));
  }
}

TEST(StalePacket, IsOneWhoseUdpLengthAloneIsStale) {
  Bytes packet = ipv4_packet(7078, Bytes(100), 100);
  store_be(packet, 24, 8 + 1400);
  EXPECT_TRUE(stale_payload(packet, 7078));
}

TEST(StalePacket, AnyBytesMayCome) {
  const Bytes whole = ipv4_packet(7078, Bytes(100), 1400);
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const auto stale = stale_payload(base::ByteView(whole).first(size), 7078);
    EXPECT_EQ(stale.has_value(), size >= 28) << size;
  }
  Bytes fragment = whole;
  fragment[6] = 0x20;
  EXPECT_FALSE(stale_payload(fragment, 7078));
  Bytes short_header = whole;
  short_header[0] = 0x41;
  EXPECT_FALSE(stale_payload(short_header, 7078));
}

// Sends the raw packet on loopback; false without the privilege.
bool put_on_loopback(const Bytes& packet, int protocol) {
  const net::UniqueFd fd(::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_ll to = {};
  to.sll_family = AF_PACKET;
  to.sll_protocol = htons(static_cast<std::uint16_t>(protocol));
  to.sll_ifindex = 1;
  to.sll_halen = 6;
  return ::sendto(fd.get(), packet.data(), packet.size(), 0, reinterpret_cast<const sockaddr*>(&to),
                  sizeof(to)) == static_cast<ssize_t>(packet.size());
}

void check_watch(bool ipv6, const Bytes& stale, const Bytes& good, std::uint16_t port) {
  base::Result<WireWatch> watch = WireWatch::open(ipv6, port);
  const int protocol = ipv6 ? ETH_P_IPV6 : ETH_P_IP;
  if (!watch.ok() || !put_on_loopback(good, protocol)) {
    GTEST_SKIP() << "needs CAP_NET_RAW and an interface 1 that is loopback";
  }
  ASSERT_TRUE(put_on_loopback(stale, protocol));
  std::vector<StalePacket> seen;
  std::uint32_t tag = 0;
  // A softirq delivers it soon.
  harness::wait_until([&] {
    watch.value().drain([&](const StalePacket& packet) {
      seen.push_back(packet);
      tag = burst_tag_of(packet.payload).value_or(0);
    });
    return !seen.empty();
  });
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].frame_bytes, stale.size() + 14);
  EXPECT_EQ(seen[0].interface, "lo");
  EXPECT_EQ(tag, 4711U);
}

TEST(WireWatch, SeesWhatSocketsDoNot) {
  base::Result<ProbeSocket> socket =
      ProbeSocket::open(net::SocketAddress::parse("127.0.0.1:0").value());
  ASSERT_TRUE(socket.ok());
  const std::uint16_t port = socket->local().port();
  const Bytes payload = make_burst_packet(4711, 1400);
  const base::ByteView cut = base::ByteView(payload).first(214);
  check_watch(false, ipv4_packet(port, cut, payload.size()), ipv4_packet(port, cut, cut.size()),
              port);
}

TEST(WireWatch, SeesThemOverIpv6) {
  base::Result<ProbeSocket> socket =
      ProbeSocket::open(net::SocketAddress::parse("[::1]:0").value());
  if (!socket.ok()) {
    GTEST_SKIP() << "this host has no IPv6";
  }
  const std::uint16_t port = socket->local().port();
  const Bytes payload = make_burst_packet(4711, 1400);
  const base::ByteView cut = base::ByteView(payload).first(214);
  check_watch(true, ipv6_packet(port, cut, payload.size()), ipv6_packet(port, cut, cut.size()),
              port);
}

}  // namespace

}  // namespace spillway::doctor
