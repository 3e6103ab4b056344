// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/packet_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
// Must follow the socket headers: the kernel's headers define the same types.
#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "net/system_call.h"
#include "net/udp_socket.h"
#include "switch/dataplane/port.h"
#include "switch/fabric/frame.h"

namespace spillway::fabric {
namespace {

base::Status cannot_attach(const std::string& interface, int error) {
  return net::system_error(
      fmt::format("attach to the interface {}", interface), error,
      error == EPERM ? "run as root, or inside a user namespace: unshare -rn" : "");
}

base::Status set_options(int fd, int index) {
  const int yes = 1;
  packet_mreq everything = {};
  everything.mr_ifindex = index;
  everything.mr_type = PACKET_MR_PROMISC;
  const bool set =
      ::setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof(yes)) == 0 &&
      ::setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &yes, sizeof(yes)) == 0 &&
      ::setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof(yes)) == 0 &&
      ::setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &everything, sizeof(everything)) == 0;
  if (!set) {
    return net::system_error("set up a packet socket", errno);
  }
  net::size_socket_buffers(fd, kSocketBufferBytes);  // optional, so failure is ignored
  return {};
}

// Returns 0 if there is no such interface. Needs no privilege.
int index_of(const std::string& interface) {
  const net::UniqueFd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  const bool is_there =
      interface.size() < IFNAMSIZ && any.valid() && ::ioctl(any.get(), SIOCGIFINDEX, &request) == 0;
  return is_there ? request.ifr_ifindex : 0;
}

base::Result<std::size_t> mtu_of(int fd, const std::string& interface) {
  ifreq request = {};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  if (::ioctl(fd, SIOCGIFMTU, &request) != 0) {
    return net::system_error(fmt::format("read the MTU of {}", interface), errno);
  }
  return static_cast<std::size_t>(request.ifr_mtu);
}

// Only a bound socket receives, so its options are set before the first frame.
base::Status bind_to(int fd, int index) {
  sockaddr_ll address = {};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = index;
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return net::system_error("bind a packet socket", errno);
  }
  return {};
}

// Puts the tag back into the frame, in the buffer's headroom.
base::MutableByteView with_tag(base::MutableByteView frame, std::uint32_t vlan) {
  static_assert(ReceiveBatch::kHeadroom >= SPILLWAY_VLAN_TAG);
  constexpr std::size_t kAddresses = 2 * kMacBytes;
  if (frame.size() < kAddresses) {
    return frame;
  }
  std::uint8_t* start = frame.data() - SPILLWAY_VLAN_TAG;
  std::memmove(start, frame.data(), kAddresses);
  const std::uint32_t tag = htonl(vlan);
  std::memcpy(start + kAddresses, &tag, sizeof(tag));
  return {start, frame.size() + SPILLWAY_VLAN_TAG};
}

}  // namespace

PacketPort::PacketPort(net::UniqueFd fd, std::size_t frame_bytes, scenario::HostId host,
                       std::uint8_t lengths)
    : Port(frame_bytes, frame_bytes + SPILLWAY_VLAN_TAG),
      fd_(std::move(fd)),
      host_(host),
      lengths_(lengths) {}

base::Result<std::unique_ptr<PacketPort>> PacketPort::open(const std::string& interface,
                                                           scenario::HostId host,
                                                           std::uint8_t lengths) {
  const int index = index_of(interface);
  if (index == 0) {
    return base::Status(
        base::StatusCode::kUnavailable,
        fmt::format("there is no interface {} here; `ip link` lists them", interface));
  }
  net::UniqueFd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return cannot_attach(interface, errno);
  }
  base::Status status = set_options(fd.get(), index);
  const base::Result<std::size_t> mtu = mtu_of(fd.get(), interface);
  if (status.ok()) {
    status = mtu.ok() ? bind_to(fd.get(), index) : mtu.status();
  }
  if (!status.ok()) {
    return status;
  }
  // A tag that the kernel leaves in the frame does not count towards the MTU.
  const std::size_t longest =
      std::min<std::size_t>(*mtu + SPILLWAY_ETHERNET_HEADER + SPILLWAY_VLAN_TAG,
                            SPILLWAY_MAX_FRAME_BYTES - SPILLWAY_VLAN_TAG);
  return std::unique_ptr<PacketPort>(new PacketPort(std::move(fd), longest, host, lengths));
}

void PacketPort::take(const Received& received, Intake& intake) {
  if (received.is_cut) {
    ++oversized_;
    return;
  }
  if (received.no_checksum) {
    complete_checksum(received.bytes);
  }
  const base::ByteView frame =
      received.vlan ? with_tag(received.bytes, *received.vlan) : received.bytes;
  intake.take_frame(host_, frame, received.notes.at);
}

void PacketPort::write(const Departure& departure) {
  if (departure.bytes.size() > out_.message_bytes()) {
    ++oversized_;  // from an interface with a larger MTU
    return;
  }
  const base::MutableByteView frame = out_.add(fd_.get(), departure.bytes.size(), 0, departure.due);
  base::copy_bytes(departure.bytes.data(), departure.bytes.size(), frame.data());
  if (departure.is_cut) {
    fix_lengths(frame, lengths_);
  }
  set_traffic_class(frame, departure.dscp, departure.ecn);
}

PortCounters PacketPort::counters() {
  tpacket_stats stats = {};
  socklen_t size = sizeof(stats);
  if (::getsockopt(fd_.get(), SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0) {
    missed_ += stats.tp_drops;  // since the last query
  }
  return {.out = out_.counters(), .missed = missed_, .oversized = oversized_};
}

}  // namespace spillway::fabric
