// SPDX-License-Identifier: Apache-2.0
//
// A switch in the kernel: programs at the interfaces of its ports, and the maps they share. Once
// attached, it works without a process. A switch with a name is pinned: it stays until it is
// detached, and any process that knows the name can open it. One without a name ends with the
// object.
//
// attach() attaches all ports or, if one fails, none. Interfaces are those of the calling thread's
// network namespace. One thread at a time.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "switch/fabric/emulator.h"
#include "switch/kernel/attachment.h"
#include "switch/kernel/pins.h"
#include "switch/kernel/switch_maps.h"
#include "switch/kernel/switch_object.h"
#include "switch/kernel/switch_plan.h"

namespace spillway::kernel {

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
  // What the user should know: interfaces whose driver has no XDP, and those where XDP may miss
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
