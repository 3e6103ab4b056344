// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/trim_probe.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "net/address.h"
#include "net/datagrams.h"
#include "net/system_call.h"
#include "switch/dataplane/frame.h"
#include "transport/endpoint.h"
#include "wire/data_packet.h"
#include "wire/packet.h"

namespace spillway::doctor {

// ------------------------------------------------------------------ stale packets

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

// ------------------------------------------------------------------ the probe

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
  header.stamp.message.signature = tag;
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

wire::PacketAuth burst_auth() {
  constexpr std::array<std::uint8_t, wire::PacketAuth::kMinSecretBytes> kPublic{};
  return wire::PacketAuth::of_secret(kPublic).value();
}

std::vector<std::uint8_t> make_burst_packet(std::uint32_t tag, std::size_t limit) {
  SPILLWAY_CHECK(limit >= kMinLimit);
  std::uint8_t quanta = 255;
  while (header_of(tag, quanta).packet_size() > limit) {
    --quanta;
  }
  const wire::DataHeader header = header_of(tag, quanta);
  const std::vector<std::uint8_t> planes(header.payload_bytes());
  std::vector<std::uint8_t> packet(header.packet_size());
  wire::write_data_packet(header, planes, burst_auth(), packet);
  return packet;
}

std::optional<std::uint32_t> burst_tag_of(base::ByteView payload) {
  constexpr std::uint8_t kVersionType = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_PLANES;
  constexpr std::size_t kTagAt = offsetof(spillway_planes_header, signature);
  constexpr std::size_t kJobAt = offsetof(spillway_packet_header, job);
  if (payload.size() < kTagAt + sizeof(std::uint32_t) || payload[0] != kVersionType ||
      base::load_le<std::uint16_t>(&payload[kJobAt]) != kJob) {
    return std::nullopt;
  }
  return base::load_le<std::uint32_t>(&payload[kTagAt]);
}

base::Result<BurstSent> send_burst(const BurstOptions& options) {
  base::Result<net::UdpSocket> socket =
      net::UdpSocket::open(net::SocketAddress::any(options.peer.family()));
  if (!socket.ok()) {
    return socket.status();
  }
  std::vector<net::UdpSocket> sockets;
  sockets.push_back(std::move(socket).value());
  net::DatagramSender sender(std::move(sockets), net::available_offloads({}));
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

namespace {

constexpr const char* kTrim = "trim";
constexpr const char* kConfiguredCheck = "trim-configured";
constexpr const char* kStale = "stale-lengths";
constexpr unsigned kAskTries = 10;
constexpr std::chrono::milliseconds kUntilDrained{200};  // for queues and the listener

unsigned frame_bytes_of(std::size_t payload, bool ipv6) {
  return static_cast<unsigned>(payload + spillway_frame_overhead(ipv6));
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string size_text(const TrimOutcome& trims) {
  if (trims.smallest == trims.largest) {
    return fmt::format("{} bytes", trims.frame_bytes);
  }
  return fmt::format("{} bytes ({} to {})", trims.frame_bytes, trims.smallest, trims.largest);
}

Finding nothing_trimmed(const BurstOutcome& burst, const TrimOutcome& trims) {
  if (trims.lost == 0) {
    return {kTrim, Severity::kNote,
            fmt::format("all {} packets arrived whole: one sender alone fills no queue where all "
                        "links have one rate",
                        burst.sent.packets),
            "run this from two or three hosts at once, or with a higher --trim-rate"};
  }
  return {kTrim, Severity::kNote,
          fmt::format("{:.1f} % of {} packets were lost and none was trimmed ({} of them at the "
                      "listener's socket)",
                      percent(trims.lost, burst.sent.packets), burst.sent.packets,
                      burst.arrived.overflowed),
          "turn on trimming where the switches can; Spillway works without, with more loss"};
}

Finding trimmed(const BurstOutcome& burst, const TrimOutcome& trims) {
  const std::string text = fmt::format(
      "frames are cut to {}, DSCP {}; of {} packets {:.1f} % were cut, {:.1f} % lost",
      size_text(trims), trims.dscp, burst.sent.packets, percent(trims.trimmed, burst.sent.packets),
      percent(trims.lost, burst.sent.packets));
  if (trims.dscp != SPILLWAY_DSCP_TRIMMED) {
    return {kTrim, Severity::kNote, text,
            fmt::format("have the switch give trimmed packets DSCP {} and a queue of their own",
                        SPILLWAY_DSCP_TRIMMED)};
  }
  return {kTrim, Severity::kOk, text};
}

// Heads longer than the trimmed packet cannot be verified, so the whole packet is lost.
Finding check_configured(unsigned configured, unsigned smallest) {
  const std::string remedy = fmt::format("set SPILLWAY_TRIM_BYTES={}", smallest);
  const std::string text =
      fmt::format("SPILLWAY_TRIM_BYTES is {}, frames are cut to {}", configured, smallest);
  if (configured > smallest) {
    return {kConfiguredCheck, Severity::kError, text + ": cut packets would be useless", remedy};
  }
  if (configured + SPILLWAY_VLAN_TAG < smallest) {
    return {kConfiguredCheck, Severity::kWarning, text + ": less of each is used than could be",
            remedy};
  }
  return {kConfiguredCheck, Severity::kOk, text};
}

Finding check_stale(const BurstOutcome& burst, const TrimOutcome& trims) {
  const ArrivalSummary& arrived = burst.arrived;
  if (arrived.stale > 0) {
    return {kStale, Severity::kError,
            fmt::format("{} of {} trimmed packets ({} to {} bytes of frame) came with stale "
                        "lengths and were thrown away by the kernel",
                        arrived.stale, arrived.stale + trims.trimmed, arrived.stale_smallest,
                        arrived.stale_largest),
            fmt::format("spillway fixup attach --interface {} (on {})",
                        arrived.interface.empty() ? "NAME" : arrived.interface,
                        arrived.host.empty() ? "the listener's host" : arrived.host)};
  }
  if (!arrived.watches) {
    return {kStale, Severity::kNote,
            "the listener may not look at the wire, so nobody knows of packets that were trimmed "
            "without correcting their lengths",
            "run spillway doctor --listen as root, or with CAP_NET_RAW"};
  }
  return {kStale, Severity::kOk, "the listener saw none on the wire"};
}

}  // namespace

TrimOutcome trims_of(const BurstOutcome& burst) {
  TrimOutcome trims;
  std::uint32_t most = 0;
  for (const ArrivalKind& kind : burst.arrived.seen()) {
    if (kind.length >= burst.sent.payload_bytes) {
      trims.whole += kind.count;
      continue;
    }
    const unsigned frame = frame_bytes_of(kind.length, burst.ipv6);
    trims.smallest = trims.trimmed == 0 ? frame : std::min(trims.smallest, frame);
    trims.largest = std::max(trims.largest, frame);
    trims.trimmed += kind.count;
    if (kind.count > most) {
      most = kind.count;
      trims.frame_bytes = frame;
      trims.dscp = kind.dscp;
    }
  }
  trims.trimmed += burst.arrived.others;
  const std::uint64_t came = trims.whole + trims.trimmed + burst.arrived.stale;
  trims.lost = burst.sent.packets > came ? burst.sent.packets - came : 0;
  return trims;
}

Findings check_trims(const BurstOutcome& burst, std::optional<unsigned> configured_bytes) {
  const TrimOutcome trims = trims_of(burst);
  Findings findings;
  const bool cuts = trims.frame_bytes != 0;
  findings.push_back(cuts ? trimmed(burst, trims) : nothing_trimmed(burst, trims));
  if (cuts && configured_bytes) {
    findings.push_back(check_configured(*configured_bytes, trims.smallest));
  }
  findings.push_back(check_stale(burst, trims));
  return findings;
}

std::optional<BurstOutcome> provoke_trims(PeerLink& link, std::size_t payload_limit,
                                          const TrimOptions& options) {
  if (!link.ask_with_retries({.type = ProbeType::kStart}, kAskTries)) {
    return std::nullopt;
  }
  const base::Result<BurstSent> sent =
      send_burst({.peer = link.peer(),
                  .tag = static_cast<std::uint32_t>(link.session()),
                  .payload_limit = payload_limit,
                  .rate = options.rate,
                  .length = options.length});
  std::this_thread::sleep_for(kUntilDrained);
  const std::optional<ProbeReply> reply =
      link.ask_with_retries({.type = ProbeType::kSummary, .bytes = kSummaryBytes}, kAskTries);
  if (!sent.ok() || !reply || !reply->summary) {
    return std::nullopt;
  }
  return BurstOutcome{.sent = *sent, .arrived = *reply->summary, .ipv6 = link.peer().is_ipv6()};
}

}  // namespace spillway::doctor
