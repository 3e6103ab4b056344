// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/forwarding/rig.h"

#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "lab/network/isolation.h"
#include "net/system_call.h"
#include "switch/dataplane/port_config.h"
#include "switch/kernel/measure/probe_frames.h"
#include "tools/bench/command_error.h"

namespace spillway::bench {

// ------------------------------------------------------------------ two ports

namespace {

// veths have no queueing discipline, so none costs time.
constexpr const char* kLinks =
    "link add name port0 type veth peer name far0\n"
    "link add name port1 type veth peer name far1\n"
    "link set dev port0 up\n"
    "link set dev far0 up\n"
    "link set dev port1 up\n"
    "link set dev far1 up\n";

constexpr const char* kBridge =
    "link add name bridge0 type bridge mcast_snooping 0\n"
    "link set dev port0 master bridge0\n"
    "link set dev port1 master bridge0\n"
    "link set dev bridge0 up\n";

// The kernel's own IPv6 packets would be counted among the frames.
void silence_ipv6() {
  for (const char* scope : {"all", "default"}) {
    (void)lab::write_proc_file(std::string("/proc/sys/net/ipv6/conf/") + scope + "/disable_ipv6",
                               "1");
  }
}

int interface_index(int socket, std::string_view name) {
  ifreq request = {};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  if (::ioctl(socket, SIOCGIFINDEX, &request) != 0) {
    throw CommandError(net::system_error("find a port", errno));
  }
  return request.ifr_ifindex;
}

}  // namespace

kernel::LiveSwitchOptions rig_switch(std::optional<kernel::Hook> hook) {
  constexpr std::uint32_t kFastest = 0xFFFFFFFF;  // 256 bytes per nanosecond
  return {.in = kRigIn,
          .out = kRigOut,
          .sink = kRigSink,
          .hook = hook,
          .config = dataplane::default_port_config(SPILLWAY_PORT_SPILLWAY),
          .link = {.rate = kFastest, .lost_of_2_32 = 0}};
}

kernel::Frame rig_data_frame(std::uint32_t bytes) {
  const auto traffic_class =
      static_cast<std::uint8_t>(spillway_dscp_of_priority(kRigPriority) << 2 | SPILLWAY_ECN_ECT0);
  return kernel::data_frame({.traffic_class = traffic_class}, bytes, SPILLWAY_IMPORTANCE_REQUIRED);
}

ForwardingRig::ForwardingRig()
    : ip_(value_or_throw(lab::find_tool("ip", "iproute2"))),
      home_(value_or_throw(lab::current_network_namespace())) {
  const net::UniqueFd made = value_or_throw(lab::make_network_namespace());
  throw_unless_ok(lab::enter_network_namespace(made.get()));
  silence_ipv6();
  const base::Status status = lab::run_tool(ip_, {"-batch", "-"}, kLinks);
  if (!status.ok()) {
    SPILLWAY_CHECK(lab::enter_network_namespace(home_.get()).ok());
    throw CommandError(status);
  }
}

ForwardingRig::~ForwardingRig() {
  SPILLWAY_CHECK(lab::enter_network_namespace(home_.get()).ok());
}

void ForwardingRig::run_ip(const std::string& batch) const {
  throw_unless_ok(lab::run_tool(ip_, {"-batch", "-"}, batch));
}

void ForwardingRig::add_bridge() const {
  run_ip(kBridge);
}

void ForwardingRig::remove_bridge() const {
  run_ip("link del dev bridge0\n");
}

void ForwardingRig::announce_receiver() const {
  constexpr std::uint16_t kExperimental = 0x88B5;  // an EtherType for local use
  std::array<std::uint8_t, 60> frame = {0x02, 0x53, 0x57, 0, 0, 2};
  std::ranges::copy(kernel::kProbeReceiver, frame.begin() + 6);
  frame[12] = kExperimental >> 8;
  frame[13] = kExperimental & 0xFF;
  const net::UniqueFd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  sockaddr_ll to = {};
  to.sll_family = AF_PACKET;
  to.sll_ifindex = interface_index(socket.get(), kRigSink);
  if (::sendto(socket.get(), frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&to),
               sizeof(to)) < 0) {
    throw CommandError(net::system_error("send a frame to a port", errno));
  }
}

// ------------------------------------------------------------------ one processor

bool stay_on_processor(unsigned cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  return ::sched_setaffinity(0, sizeof(one), &one) == 0;
}

void rest() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

PinnedThread::PinnedThread(unsigned cpu) {
  ::sched_getaffinity(0, sizeof(before_), &before_);
  if (!stay_on_processor(cpu)) {
    throw CommandError(fmt::format("cannot stay on processor {}: {}; choose another with --cpu",
                                   cpu, std::strerror(errno)));
  }
}

PinnedThread::~PinnedThread() {
  ::sched_setaffinity(0, sizeof(before_), &before_);
}

}  // namespace spillway::bench
