// SPDX-License-Identifier: Apache-2.0
#include "lab/trace/lab_trace.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <netinet/ether.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "lab/network/isolation.h"
#include "net/system_call.h"

namespace spillway::lab {

namespace {

// Size of all hosts' rings together. Also the number of arrivals and events kept beyond that of
// departures, because what one look finds is not in order.
constexpr std::size_t kRingFrames = 1 << 17;
constexpr std::size_t kFewestFrames = 1 << 11;
constexpr base::Duration kLooksEvery = base::milliseconds(1);
// After stop(): ends when nothing has come for kQuiet, and after kLongest at the latest.
constexpr base::Duration kQuiet = base::milliseconds(20);
constexpr base::Duration kLongest = base::milliseconds(500);
// The two clocks are compared only if both were read within this time; else the thread was
// interrupted.
constexpr base::Duration kAtOnce = base::microseconds(1);

HardwareAddress address_of(const HostEntry& host) {
  HardwareAddress address;
  ether_addr parsed = {};
  ::ether_aton_r(host.mac.c_str(), &parsed);  // generated text, so it parses
  std::ranges::copy(parsed.ether_addr_octet, address.begin());
  return address;
}

void pause(base::Duration time) {
  const timespec wait = net::timespec_of(time);
  ::nanosleep(&wait, nullptr);
}

}  // namespace

base::Result<std::unique_ptr<PacketRecorder>> PacketRecorder::start(
    const HostPlan& plan, std::span<const net::UniqueFd> namespaces,
    const kernel::KernelSwitch* fabric, std::size_t packets) {
  std::unique_ptr<PacketRecorder> recorder(new PacketRecorder(packets));
  base::Status status = recorder->open_taps(plan, namespaces);
  if (status.ok() && fabric != nullptr) {
    status = recorder->open_events(*fabric);
  }
  if (!status.ok()) {
    return status;
  }
  recorder->thread_ = std::thread([self = recorder.get()] { self->work(); });
  return recorder;
}

base::Status PacketRecorder::open_taps(const HostPlan& plan,
                                       std::span<const net::UniqueFd> namespaces) {
  const std::size_t frames = std::max(kRingFrames / plan.hosts.size(), kFewestFrames);
  for (std::uint32_t host = 0; host < plan.hosts.size(); ++host) {
    log_.hosts.push_back(plan.hosts[host].name);
    hosts_[address_of(plan.hosts[host])] = host;
    const auto open = [&]() -> base::Status {
      base::Result<PacketTap> tap = PacketTap::open(std::string(kHostInterface), frames);
      if (!tap.ok()) {
        return tap.status();
      }
      taps_.push_back(std::move(tap).value());
      return {};
    };
    if (base::Status status = in_network_namespace(namespaces[host].get(), open); !status.ok()) {
      return status;
    }
  }
  return {};
}

base::Status PacketRecorder::open_events(const kernel::KernelSwitch& fabric) {
  base::Result<std::unique_ptr<kernel::SwitchEvents>> events =
      kernel::SwitchEvents::open(fabric, packets_ + kRingFrames);
  if (!events.ok()) {
    return events.status();
  }
  events_ = std::move(events).value();
  log_.ports = events_->ports();
  return {};
}

PacketRecorder::~PacketRecorder() {
  stop();
}

void PacketRecorder::stop() {
  stops_ = true;
  if (thread_.joinable()) {
    thread_.join();
  }
}

PacketLog PacketRecorder::finish() {
  stop();
  for (PacketTap& tap : taps_) {
    log_.missed += tap.missed();
  }
  if (events_ != nullptr) {
    log_.events = events_->take();
  }
  return std::move(log_);
}

// ------------------------------------------------------------------ on the recorder's thread

void PacketRecorder::work() {
  const base::MonotonicClock clock;
  base::Instant last_seen = clock.now();
  while (!stops_) {
    last_seen = look() ? clock.now() : last_seen;
    pause(kLooksEvery);
  }
  const base::Instant asked = clock.now();
  for (base::Instant now = asked; now - last_seen < kQuiet && now - asked < kLongest;
       now = clock.now()) {
    last_seen = look() ? now : last_seen;
    pause(kLooksEvery);
  }
  look();
}

bool PacketRecorder::look() {
  measure_clocks();
  bool any = events_ != nullptr && events_->read();
  for (std::uint32_t host = 0; host < taps_.size(); ++host) {
    any |= taps_[host].read([&](const TappedFrame& frame) { take(frame, host); });
  }
  return any;
}

// Repeated each time, because the time of day may be set. An interrupted measurement does not
// count: it would put arrivals before their causes.
void PacketRecorder::measure_clocks() {
  const base::MonotonicClock clock;
  const bool is_first = ahead_ == base::Duration();
  for (int attempt = 0; attempt < (is_first ? 1000 : 1); ++attempt) {
    const base::Instant before = clock.now();
    const base::Duration now = base::time_of_day();
    const base::Duration took = clock.now() - before;
    if (took <= kAtOnce || is_first) {
      ahead_ = now - before.since_zero() - took / 2;
    }
    if (took <= kAtOnce) {
      return;
    }
  }
}

void PacketRecorder::take(const TappedFrame& frame, std::uint32_t host) {
  std::optional<PacketCapture> capture = read_capture(frame.bytes, frame.length);
  if (!capture) {
    return;
  }
  const auto to = hosts_.find(receiver_of(frame.bytes));
  if (to == hosts_.end()) {
    return;
  }
  capture->at = base::Instant(frame.time_of_day - ahead_);
  capture->host = host;
  capture->to = to->second;
  capture->leaves = frame.leaves;
  keep(*capture);
}

void PacketRecorder::keep(const PacketCapture& capture) {
  std::size_t& kept = capture.leaves ? left_ : arrived_;
  if (kept < (capture.leaves ? packets_ : packets_ + kRingFrames)) {
    ++kept;
    log_.captures.push_back(capture);
  } else if (capture.leaves) {
    ++log_.left_out;
  }
}

base::Result<LabTrace> LabTrace::start(const TraceOptions& options, const HostPlan& plan,
                                       std::span<const net::UniqueFd> namespaces,
                                       const kernel::KernelSwitch* fabric) {
  if (namespaces.size() != plan.hosts.size()) {
    return base::Status(base::StatusCode::kUnavailable,
                        "packets can be followed where hosts have interfaces of their own: not "
                        "with --isolation none");
  }
  base::Result<TraceFile> file = TraceFile::create(options.path);
  if (!file.ok()) {
    return file.status();
  }
  base::Result<std::unique_ptr<PacketRecorder>> recorder =
      PacketRecorder::start(plan, namespaces, fabric, options.packets);
  if (!recorder.ok()) {
    return recorder.status();
  }
  return LabTrace(std::move(file).value(), std::move(recorder).value());
}

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
