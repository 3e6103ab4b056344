// SPDX-License-Identifier: Apache-2.0
//
// A switch in the kernel, and the plan that a scenario makes for it: programs at the interfaces of
// its ports, and the maps they share. Once attached, it works without a process. A switch with a
// name is pinned: it stays until it is detached, and any process that knows the name can open it.
// One without a name ends with the object.
//
// attach() attaches all ports or, if one fails, none. Interfaces are those of the calling thread's
// network namespace. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/scenario/scenario.h"
#include "switch/dataplane/bpf/switch_maps.h"
#include "switch/dataplane/virtual_port.h"
#include "switch/fabric/emulator.h"
#include "switch/fabric/port.h"
#include "switch/kernel/attachment.h"
#include "switch/kernel/program_loading.h"
#include "switch/kernel/switch_object.h"

namespace spillway::kernel {

// ------------------------------------------------------------------ plans
//
// A scenario as the kernel can run it: one switch, its ports with their configs, rates and gray
// loss, and what it adds. Anything that the kernel cannot do (several switches, delays, other
// faults, tenants) is refused here; the error names the command that can. Plain values; nothing is
// opened.

// Delays up to this count as those that kernels and cables have anyway.
inline constexpr base::Duration kNaturalDelay = base::microseconds(50);

struct PlannedPort {
  std::string name;  // "switch0->host3"
  std::string interface;
  spillway_port_config config = {};
  spillway_link link = {};
};

struct SwitchPlan {
  std::vector<PlannedPort> ports;  // in the topology's order of hosts
  scenario::Adder adder;           // without slots it does not add
};

// `attachments` are the ports' interfaces, one per host.
base::Result<SwitchPlan> plan_switch(const scenario::Scenario& scenario,
                                     std::span<const fabric::PortAttachment> attachments);

// Fails if the kernel switch cannot do this scenario, and says why.
base::Status check_scenario(const scenario::Scenario& scenario);

enum class Hook : std::uint8_t {
  kXdp,    // forwards by itself; unknown frames go up to the kernel, perhaps a bridge, and are
           // decided about on egress
  kTc,     // decides on the ports' egress; the kernel forwards
  kTcBoth  // forwards, and decides on egress
};

struct SwitchOptions {
  Hook hook = Hook::kXdp;
  bool queues_others = false;  // other traffic shares the queues
  bool traces = false;         // report every Spillway packet in the map of events
  // tc: the ports have a qdisc with this major number, whose classes 1 to 9 are queues 0 to 8. 0:
  // they have none.
  std::uint16_t class_major = 0;
  std::string name{};  // of the pins; empty: not pinned
};

class KernelSwitch {
 public:
  static base::Result<std::unique_ptr<KernelSwitch>> attach(const SwitchPlan& plan,
                                                            const SwitchOptions& options);
  static base::Result<std::unique_ptr<KernelSwitch>> open(const std::string& name);
  // Detaches the pinned switch of that name, even if its creator was killed half-way.
  static base::Status detach(const std::string& name);
  static std::vector<std::string> names();
  // Detaches, unless the switch is pinned.
  ~KernelSwitch();
  KernelSwitch(const KernelSwitch&) = delete;
  KernelSwitch& operator=(const KernelSwitch&) = delete;

  // An interface that has disappeared took its programs with it.
  void detach();

  // Sets the port that an address is behind; other addresses are learned.
  base::Status add_station(const spillway_station& station, std::uint32_t port);

  fabric::FabricSnapshot snapshot() const;
  // Warnings for the user: interfaces whose driver has no XDP, and those where XDP may miss
  // VLAN tags.
  std::vector<std::string> notices() const;
  const SwitchMaps& maps() const { return maps_; }

 private:
  KernelSwitch(SwitchMaps maps, std::optional<PinFolder> pins)
      : maps_(std::move(maps)), pins_(std::move(pins)) {}

  int program(Program which) const { return programs_[static_cast<std::size_t>(which)].get(); }
  void keep_programs(const SwitchObject& object);
  base::Status pin(const ObjectOptions& options) const;
  base::Status add_port(const PlannedPort& port, const SwitchOptions& options);
  base::Status attach_port(const Interface& interface, std::uint32_t number,
                           spillway_port_label& label);
  base::Status attach_port_xdp(const Interface& interface, std::uint32_t number,
                               spillway_port_label& label);
  base::Status attach_port_tc(Program which, Direction direction, const Interface& interface,
                              std::uint32_t number, spillway_port_label& label);
  void detach_port(std::uint32_t number, const spillway_port_label& label);

  SwitchMaps maps_;
  std::optional<PinFolder> pins_;
  std::array<net::UniqueFd, kPrograms.size()> programs_;  // by Program: to detach only these
  std::uint32_t ports_ = 0;
  bool adds_ = false;
};

}  // namespace spillway::kernel

// A kernel switch's report of every Spillway packet, read from its ring of events from open()
// on; earlier events are skipped. If nobody reads the ring it fills up, and the switch reports
// nothing more: read() it every few milliseconds.
//
// Keeps at most `most` events and counts the others. Only one reader at a time, over all processes:
// a reader consumes the events. One thread.

struct ring_buffer;  // libbpf's

namespace spillway::kernel {

class SwitchEvents {
 public:
  // Fails if the switch was attached without tracing.
  static base::Result<std::unique_ptr<SwitchEvents>> open(const KernelSwitch& from,
                                                          std::size_t most);
  ~SwitchEvents();
  SwitchEvents(const SwitchEvents&) = delete;
  SwitchEvents& operator=(const SwitchEvents&) = delete;

  // Reads all waiting events. Returns true if there were any.
  bool read();

  // Hands all events so far to the caller.
  std::vector<spillway_event> take() { return std::move(events_); }
  std::uint64_t left_out() const { return left_out_; }
  // Names of the switch's ports, by port number.
  const std::vector<std::string>& ports() const { return ports_; }

 private:
  struct Close {
    void operator()(ring_buffer* ring) const;
  };

  explicit SwitchEvents(std::size_t most);
  static int on_event(void* self, void* data, std::size_t bytes);
  void keep(const spillway_event& event);

  std::unique_ptr<ring_buffer, Close> ring_;
  std::size_t most_;
  std::vector<std::string> ports_;
  std::vector<spillway_event> events_;
  std::uint64_t left_out_ = 0;
};

}  // namespace spillway::kernel
