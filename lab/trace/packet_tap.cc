// SPDX-License-Identifier: Apache-2.0
#include "lab/trace/packet_tap.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>
// Must follow the socket headers: the kernel's headers define the same types.
#include <linux/filter.h>
#include <linux/if_ether.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "net/system_call.h"

namespace spillway::lab {
namespace {

// A slot holds the ring's header, some alignment and kTapBytes. A block is one allocation.
constexpr std::size_t kSlotBytes = 512;
constexpr std::size_t kBlockBytes = 1 << 16;
constexpr std::size_t kSlotsPerBlock = kBlockBytes / kSlotBytes;
static_assert(TPACKET2_HDRLEN + 16 + TPACKET_ALIGNMENT + kTapBytes <= kSlotBytes);

base::Status cannot_watch(const std::string& interface) {
  return net::system_error(fmt::format("watch the interface {}", interface), errno);
}

// Passes UDP over IPv4 and IPv6, cut to kTapBytes, and nothing else, so that TCP costs nothing.
base::Status set_filter(int fd) {
  constexpr std::uint32_t kTypeAt = 12;
  constexpr std::uint32_t kIpv4ProtocolAt = SPILLWAY_ETHERNET_HEADER + 9;
  constexpr std::uint32_t kIpv6ProtocolAt = SPILLWAY_ETHERNET_HEADER + 6;
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kTypeAt),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 2),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kIpv4ProtocolAt),
      BPF_JUMP(BPF_JMP | BPF_JA, 2, 0, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IPV6, 0, 3),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kIpv6ProtocolAt),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SPILLWAY_PROTOCOL_UDP, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, kTapBytes),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(code)), code};
  return ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0
             ? base::Status()
             : net::system_error("filter what a packet socket sees", errno);
}

base::Status set_options(int fd, std::size_t frames) {
  const int yes = 1;
  const int version = TPACKET_V2;
  tpacket_req ring = {};
  ring.tp_block_size = kBlockBytes;
  ring.tp_frame_size = kSlotBytes;
  ring.tp_block_nr = static_cast<unsigned>(frames / kSlotsPerBlock);
  ring.tp_frame_nr = static_cast<unsigned>(frames);
  // Timestamps are taken where a frame leaves or is handed over, not where this socket sees it.
  const bool set = ::setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof(yes)) == 0 &&
                   ::setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)) == 0 &&
                   ::setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof(ring)) == 0;
  return set ? set_filter(fd) : net::system_error("set up a packet socket's ring", errno);
}

bool bind_to(int fd, unsigned index) {
  sockaddr_ll address = {};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(index);
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

const sockaddr_ll& link_address(const tpacket2_hdr& frame) {
  return *reinterpret_cast<const sockaddr_ll*>(reinterpret_cast<const std::uint8_t*>(&frame) +
                                               TPACKET_ALIGN(sizeof(tpacket2_hdr)));
}

// The word with which the kernel and this process hand slots to each other.
std::atomic_ref<__u32> owner_of(tpacket2_hdr& frame) {
  return std::atomic_ref<__u32>(frame.tp_status);
}

}  // namespace

base::Result<PacketTap> PacketTap::open(const std::string& interface, std::size_t frames) {
  const unsigned index = ::if_nametoindex(interface.c_str());
  net::UniqueFd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (index == 0 || !fd.valid()) {
    return cannot_watch(interface);
  }
  PacketTap tap(std::move(fd), std::max(frames / kSlotsPerBlock, std::size_t{1}) * kSlotsPerBlock);
  base::Status status = set_options(tap.fd_.get(), tap.frames_);
  if (status.ok()) {
    status = tap.map_ring();
  }
  if (!status.ok()) {
    return status;
  }
  // Only a bound socket sees frames, so filter and ring are set up before the first one.
  if (!bind_to(tap.fd_.get(), index)) {
    return cannot_watch(interface);
  }
  return tap;
}

base::Status PacketTap::map_ring() {
  void* mapped =
      ::mmap(nullptr, frames_ * kSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (mapped == MAP_FAILED) {
    return net::system_error("map a packet socket's ring", errno);
  }
  ring_ = static_cast<std::uint8_t*>(mapped);
  return {};
}

PacketTap::PacketTap(PacketTap&& other) noexcept
    : fd_(std::move(other.fd_)),
      frames_(other.frames_),
      ring_(std::exchange(other.ring_, nullptr)),
      next_(other.next_) {}

PacketTap::~PacketTap() {
  if (ring_ != nullptr) {
    ::munmap(ring_, frames_ * kSlotBytes);
  }
}

tpacket2_hdr* PacketTap::next() {
  auto* frame = reinterpret_cast<tpacket2_hdr*>(ring_ + next_ * kSlotBytes);
  const bool is_ours = (owner_of(*frame).load(std::memory_order_acquire) & TP_STATUS_USER) != 0;
  return is_ours ? frame : nullptr;
}

bool PacketTap::concerns_the_host(const tpacket2_hdr& frame) {
  const unsigned char type = link_address(frame).sll_pkttype;
  return type == PACKET_HOST || type == PACKET_OUTGOING;
}

TappedFrame PacketTap::tapped(tpacket2_hdr& frame) {
  TappedFrame tapped;
  tapped.bytes = {reinterpret_cast<std::uint8_t*>(&frame) + frame.tp_mac, frame.tp_snaplen};
  tapped.length = frame.tp_len;
  tapped.time_of_day = base::seconds(frame.tp_sec) + base::nanoseconds(frame.tp_nsec);
  tapped.leaves = link_address(frame).sll_pkttype == PACKET_OUTGOING;
  return tapped;
}

void PacketTap::hand_back(tpacket2_hdr& frame) {
  owner_of(frame).store(TP_STATUS_KERNEL, std::memory_order_release);
  next_ = (next_ + 1) % frames_;
}

std::uint64_t PacketTap::missed() {
  tpacket_stats stats = {};
  socklen_t bytes = sizeof(stats);
  return ::getsockopt(fd_.get(), SOL_PACKET, PACKET_STATISTICS, &stats, &bytes) == 0
             ? stats.tp_drops
             : 0;
}

}  // namespace spillway::lab
