// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "net/sockets.h"
#include "net/system_call.h"
#include "switch/dataplane/port.h"
#include "switch/fabric/frame.h"
#include "transport/endpoint.h"
#include "wire/packet.h"

namespace spillway::fabric {

// ------------------------------------------------------------------ attachments

namespace {

base::Status bad(const scenario::PortLine& line, std::string_view what) {
  return base::invalid_argument(fmt::format("{}: port: {}", line.place, what));
}

base::Result<net::SocketAddress> address(const scenario::PortLine& line, std::string_view key,
                                         const std::string& text) {
  base::Result<net::SocketAddress> parsed = net::SocketAddress::parse(text);
  if (!parsed.ok()) {
    return bad(line, fmt::format("{}: {}", key, parsed.status().message()));
  }
  return parsed;
}

base::Result<PortAttachment> attachment_of(const scenario::PortLine& line) {
  const bool is_relay = !line.listen.empty() && !line.deliver.empty() && line.interface.empty();
  const bool is_interface = !line.interface.empty() && line.listen.empty() && line.deliver.empty();
  if (!is_relay && !is_interface) {
    return bad(line, "give either interface=NAME, or listen=ADDRESS:PORT and deliver=ADDRESS:PORT");
  }
  PortAttachment attachment;
  attachment.interface = line.interface;
  if (is_relay) {
    const auto listen = address(line, "listen", line.listen);
    const auto deliver = address(line, "deliver", line.deliver);
    if (!listen.ok() || !deliver.ok()) {
      return listen.ok() ? deliver.status() : listen.status();
    }
    attachment.listen = *listen;
    attachment.deliver = *deliver;
  }
  return attachment;
}

}  // namespace

base::Result<std::vector<PortAttachment>> port_attachments(const scenario::Scenario& scenario,
                                                           const scenario::Topology& topology) {
  std::vector<std::optional<PortAttachment>> found(topology.hosts());
  for (const scenario::PortLine& line : scenario.ports) {
    const auto host = std::ranges::find(topology.host_names, line.host);
    if (host == topology.host_names.end()) {
      return bad(line, fmt::format("there is no host '{}'; hosts are {} to {}", line.host,
                                   topology.host_names.front(), topology.host_names.back()));
    }
    std::optional<PortAttachment>& place =
        found[static_cast<std::size_t>(host - topology.host_names.begin())];
    if (place) {
      return bad(line, fmt::format("a second one for host {}", line.host));
    }
    const base::Result<PortAttachment> attachment = attachment_of(line);
    if (!attachment.ok()) {
      return attachment.status();
    }
    place = *attachment;
  }
  std::vector<PortAttachment> attachments;
  for (scenario::HostId host = 0; host < topology.hosts(); ++host) {
    if (!found[host]) {
      return base::invalid_argument(
          fmt::format("host {0} has no port: add `port host={0} interface=NAME`, or `port "
                      "host={0} listen=ADDRESS:PORT deliver=ADDRESS:PORT`",
                      topology.host_names[host]));
    }
    attachments.push_back(*found[host]);
  }
  return attachments;
}

void Port::read(Ingress& ingress) {
  for (std::size_t total = 0; total < kFramesPerRead;) {
    const std::size_t count = in_.receive(fd());
    const base::Instant now = base::MonotonicClock().now();
    base::Instant latest = now;
    for (std::size_t i = 0; i < count; ++i) {
      const Received received = in_.message(i, now);
      latest = received.notes.at;
      take(received, ingress);
    }
    total += count;
    if (count < ReceiveBatch::kMessages) {
      return;
    }
    if (total >= kFramesPerRead) {
      ingress.stopped_at(latest);
    }
  }
}

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

void PacketPort::take(const Received& received, Ingress& ingress) {
  if (received.is_cut) {
    ++oversized_;
    return;
  }
  if (received.no_checksum) {
    complete_checksum(received.bytes);
  }
  const base::ByteView frame =
      received.vlan ? with_tag(received.bytes, *received.vlan) : received.bytes;
  ingress.take_frame(host_, frame, received.notes.at);
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

namespace {

std::string_view ip_bytes(const net::SocketAddress& address) {
  const auto* data = reinterpret_cast<const char*>(address.data());
  return address.is_ipv6() ? std::string_view(data + offsetof(sockaddr_in6, sin6_addr), 16)
                           : std::string_view(data + offsetof(sockaddr_in, sin_addr), 4);
}

std::string key_of(const net::SocketAddress& address) {
  std::string key(ip_bytes(address));
  key.push_back(static_cast<char>(address.port() >> 8));
  key.push_back(static_cast<char>(address.port() & 0xFF));
  return key;
}

}  // namespace

RelayDirectory::RelayDirectory(std::span<const PortAttachment> ports)
    : hosts_(static_cast<std::uint32_t>(ports.size())) {
  for (scenario::HostId host = 0; host < hosts_; ++host) {
    const net::SocketAddress& address = ports[host].deliver;
    by_address_.emplace(key_of(address), host);
    const auto [entry, is_first] = by_ip_.emplace(ip_bytes(address), host);
    if (!is_first) {
      entry->second.reset();
    }
  }
}

std::optional<scenario::HostId> RelayDirectory::source_of(const net::SocketAddress& from,
                                                          base::ByteView payload) const {
  if (const auto exact = by_address_.find(key_of(from)); exact != by_address_.end()) {
    return exact->second;
  }
  if (const auto same_ip = by_ip_.find(ip_bytes(from));
      same_ip != by_ip_.end() && same_ip->second) {
    return same_ip->second;
  }
  if (payload.size() < sizeof(spillway_packet_header)) {
    return std::nullopt;
  }
  const auto rank =
      base::load_le<std::uint16_t>(&payload[offsetof(spillway_packet_header, source)]);
  return rank < hosts_ ? std::optional<scenario::HostId>(rank) : std::nullopt;
}

RelayPort::RelayPort(net::UdpSocket socket, const PortAttachment& attachment, scenario::HostId host,
                     const RelayDirectory& directory)
    : Port(SPILLWAY_MAX_PACKET, SPILLWAY_MAX_PACKET, attachment.deliver),
      socket_(std::move(socket)),
      host_(host),
      directory_(directory) {}

base::Result<std::unique_ptr<RelayPort>> RelayPort::open(const PortAttachment& attachment,
                                                         scenario::HostId host,
                                                         const RelayDirectory& directory) {
  base::Result<net::UdpSocket> socket = net::UdpSocket::open(attachment.listen);
  if (!socket.ok()) {
    return socket.status();
  }
  socket.value().report_arrivals(/*gro=*/false);
  socket.value().size_buffers(kSocketBufferBytes);
  return std::unique_ptr<RelayPort>(
      new RelayPort(std::move(socket).value(), attachment, host, directory));
}

// A datagram longer than any Spillway packet was cut by the buffer. The rest may look like a
// Spillway packet to Ingress, so it gets nothing.
void RelayPort::take(const Received& received, Ingress& ingress) {
  const net::SocketAddress from = net::SocketAddress::from(*received.from);
  const base::ByteView payload = received.is_cut ? base::ByteView() : received.bytes;
  ingress.take_datagram({.from = directory_.source_of(from, payload),
                         .to = host_,
                         .tos = received.notes.tos,
                         .label = from.port(),
                         .payload = payload},
                        received.notes.at);
}

void RelayPort::write(const Departure& departure) {
  const auto tos = static_cast<std::uint8_t>((departure.dscp << 2) | departure.ecn);
  const base::MutableByteView datagram =
      out_.add(socket_.fd(), departure.bytes.size(), tos, departure.due);
  base::copy_bytes(departure.bytes.data(), departure.bytes.size(), datagram.data());
}

PortCounters RelayPort::counters() {
  return {.out = out_.counters(), .missed = in_.overflowed()};
}

void PortStack::push(sim::PacketIndex index, base::Instant at) {
  const std::uint32_t bytes = pool_[index].bytes;
  if (waiting_bytes_ + bytes > kIngressBytes) {
    ++dropped_;
    pool_.release(index);
    return;
  }
  waiting_bytes_ += bytes;
  waiting_.push_back({waiting_.empty() ? at : std::max(at, waiting_.back().at), index});
}

void PortStack::on_packet(sim::Packet& packet, base::Instant now) {
  port_.write({.bytes = pool_.payload(packet),
               .dscp = packet.dscp,
               .ecn = packet.ecn,
               .is_cut = packet.bytes < packet.sent_bytes,
               .due = zero_ + now.since_zero()});
}

// A frame that has already arrived waits for the emulated card, not for the clock.
base::Instant PortStack::next_timeout() const {
  return waiting_.empty() || waiting_.front().at <= seen_ ? transport::kNever : waiting_.front().at;
}

bool PortStack::poll_transmit(base::Instant now, sim::Packet& packet) {
  seen_ = now;
  if (waiting_.empty() || waiting_.front().at > now) {
    return false;
  }
  const sim::PacketIndex index = waiting_.front().packet;
  waiting_.pop_front();
  sim::Packet& kept = pool_[index];
  waiting_bytes_ -= kept.bytes;
  packet = kept;
  packet.next = sim::kNone;
  kept.payload = sim::kNone;  // moved to `packet`
  pool_.release(index);
  return true;
}

}  // namespace spillway::fabric
