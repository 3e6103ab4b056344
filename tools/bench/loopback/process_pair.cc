// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/loopback/process_pair.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <span>

#include "base/clock.h"
#include "base/random.h"
#include "net/system_call.h"
#include "tools/bench/command_error.h"
#include "wire/data_packet.h"
#include "wire/packet.h"

namespace spillway::bench {

// ------------------------------------------------------------------ two processes

namespace {

using net::UniqueFd;

// Gives each side a core of its own. If there is only one, the kernel places the processes.
void pin_to_core(int side) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2) {
    return;
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed) && seen++ == side) {
      CPU_SET(core, &own);
    }
  }
  ::sched_setaffinity(0, sizeof(own), &own);
}

// Counts this process's cycles, including the kernel's; an invalid descriptor if not permitted.
UniqueFd cycle_counter() {
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.size = sizeof(attributes);
  attributes.config = PERF_COUNT_HW_CPU_CYCLES;
  return UniqueFd(static_cast<int>(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0)));
}

double cycles_of(const UniqueFd& counter) {
  std::uint64_t cycles = 0;
  if (!counter.valid() || ::read(counter.get(), &cycles, sizeof(cycles)) != sizeof(cycles)) {
    return 0.0;
  }
  return static_cast<double>(cycles);
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

// `others` is the other side's end of the stream. It is closed, so that the stream ends when that
// side does.
[[noreturn]] void run_side(const Side& side, int side_number, int stream, int others, int report) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  net::name_thread(side_number == 0 ? "sender" : "receiver");
  ::close(others);
  pin_to_core(side_number);
  try {
    const UniqueFd counter = cycle_counter();
    const double before = cpu_seconds();
    SideResult result = side(stream);
    result.cpu_seconds = cpu_seconds() - before;
    result.cycles = cycles_of(counter);
    const bool written = ::write(report, &result, sizeof(result)) == sizeof(result);
    ::_exit(written ? 0 : 1);
  } catch (const std::exception& error) {
    fmt::print(stderr, "spillway: {}\n", error.what());
    std::fflush(stderr);
    ::_exit(1);
  }
}

struct Running {
  pid_t pid = -1;
  UniqueFd report;
};

Running start_side(const Side& side, int core, int stream, int others) {
  std::array<int, 2> report{};
  if (::pipe(report.data()) != 0) {
    throw CommandError("cannot make a pipe");
  }
  UniqueFd read_end(report[0]);
  const UniqueFd write_end(report[1]);
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) {
    throw CommandError("cannot start a process");
  }
  if (pid == 0) {
    run_side(side, core, stream, others, write_end.get());
  }
  return {pid, std::move(read_end)};
}

SideResult result_of(const Running& running) {
  SideResult result;
  const bool complete = ::read(running.report.get(), &result, sizeof(result)) == sizeof(result);
  int status = 0;
  ::waitpid(running.pid, &status, 0);
  if (!complete) {
    throw CommandError("a measuring process died");
  }
  return result;
}

}  // namespace

std::pair<SideResult, SideResult> run_pair(const Side& sender, const Side& receiver) {
  std::array<int, 2> streams{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, streams.data()) != 0) {
    throw CommandError("cannot make a pair of sockets");
  }
  UniqueFd sender_stream(streams[0]);
  UniqueFd receiver_stream(streams[1]);
  const Running sending = start_side(sender, 0, streams[0], streams[1]);
  const Running receiving = start_side(receiver, 1, streams[1], streams[0]);
  sender_stream = UniqueFd();
  receiver_stream = UniqueFd();
  const SideResult sent = result_of(sending);
  return {sent, result_of(receiving)};
}

net::SocketAddress loopback(std::uint16_t port) {
  return value_or_throw(net::SocketAddress::parse(fmt::format("127.0.0.1:{}", port)));
}

base::Instant now() {
  return base::MonotonicClock().now();
}

double seconds_between(base::Instant a, base::Instant b) {
  return static_cast<double>((b - a).count()) * 1e-9;
}

void sleep_until(base::Instant when) {
  const timespec time = net::timespec_of(when.since_zero());
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) != 0) {
  }
}

void tell_port(int stream, std::uint16_t port) {
  if (::write(stream, &port, sizeof(port)) != sizeof(port)) {
    throw CommandError("the sender is gone");
  }
}

std::uint16_t hear_port(int stream) {
  std::uint16_t port = 0;
  if (::read(stream, &port, sizeof(port)) != sizeof(port)) {
    throw CommandError("the receiver is gone");
  }
  return port;
}

bool is_done(int stream, int wait_milliseconds) {
  pollfd poll{stream, POLLIN, 0};
  return ::poll(&poll, 1, wait_milliseconds) > 0;
}

// ------------------------------------------------------------------ messages

namespace {

// Long rows mean fewer short packets, which would end a GSO run.
constexpr packetize::Encoding kEncoding{.precision = 16, .row_log2 = 15};
constexpr std::uint64_t kPlanesKey = 0x5350494C4C574159ULL;

std::vector<PlaneSpan> spans_of(const packetize::PacketPlan& plan) {
  std::vector<PlaneSpan> spans(plan.packet_count());
  std::uint32_t offset = 0;
  for (std::size_t packet = 0; packet < spans.size(); ++packet) {
    const auto bytes = static_cast<std::uint32_t>(plan.place(packet).count / 8 * plan.planes());
    spans[packet] = {offset, bytes};
    offset += bytes;
  }
  return spans;
}

std::vector<std::uint8_t> random_planes(std::span<const PlaneSpan> spans) {
  std::vector<std::uint8_t> planes(spans.back().offset + spans.back().bytes);
  base::RandomSequence random(kPlanesKey);
  for (std::uint8_t& byte : planes) {
    byte = static_cast<std::uint8_t>(random.next_word());
  }
  return planes;
}

wire::DataHeader header_of(const packetize::PacketPlan& plan, std::size_t packet) {
  const packetize::PacketPlace place = plan.place(packet);
  wire::DataHeader header;
  header.row_log2 = static_cast<std::uint8_t>(plan.layout().row(place.row).log2_length);
  header.rotations = 1;
  header.planes = static_cast<std::uint8_t>(plan.planes());
  header.row = static_cast<std::uint16_t>(place.row);
  header.slot = static_cast<std::uint8_t>(place.slot);
  header.quanta = static_cast<std::uint16_t>(plan.quanta());
  header.head_bytes = static_cast<std::uint16_t>(plan.head_bytes(place.count));
  header.has_segmented_tail = plan.has_segmented_tails();
  header.scale = 1.0F;
  return header;
}

}  // namespace

packetize::PacketPlan plan_of_size(std::uint64_t bytes, unsigned datagram_bytes,
                                   unsigned trim_bytes) {
  const packetize::PacketLimits limits{.mtu = datagram_bytes + spillway_datagram_overhead(0),
                                       .trim_bytes = trim_bytes};
  const std::size_t values = std::max<std::uint64_t>(bytes * 8 / kEncoding.precision, 1);
  return value_or_throw(packetize::PacketPlan::make(values, limits, kEncoding));
}

PlaneSource::PlaneSource(const packetize::PacketPlan& plan) : spans_(spans_of(plan)) {
  planes_ = random_planes(spans_);
  for (std::size_t packet = 0; packet < plan.packet_count(); ++packet) {
    headers_.push_back(header_of(plan, packet));
  }
}

std::size_t PlaneSource::write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                               base::MutableByteView out) {
  wire::DataHeader header = headers_[stamp.packet];
  const PlaneSpan& span = spans_[stamp.packet];
  header.stamp = stamp;
  return wire::write_data_packet(header, base::ByteView(planes_).subspan(span.offset, span.bytes),
                                 auth, out);
}

PlaneSink::PlaneSink(const packetize::PacketPlan& plan) : plan_(plan), spans_(spans_of(plan)) {
  planes_.resize(spans_.back().offset + spans_.back().bytes);
}

unsigned PlaneSink::take(const wire::OpenedPacket& packet, base::ByteView bytes) {
  const wire::DataHeader& header = packet.header;
  if (header.stamp.packet >= spans_.size() || header.planes != plan_.planes() ||
      header.payload_bytes() != spans_[header.stamp.packet].bytes) {
    return 0;
  }
  const PlaneSpan& span = spans_[header.stamp.packet];
  const base::MutableByteView room =
      base::MutableByteView(planes_).subspan(span.offset, span.bytes);
  const wire::TrustedPlanes trusted = wire::copy_trusted_planes(bytes, packet, room);
  return static_cast<unsigned>(trusted.bytes * header.planes / span.bytes);
}

bool PlaneSink::holds_what_was_sent() const {
  return planes_ == random_planes(spans_);
}

}  // namespace spillway::bench
