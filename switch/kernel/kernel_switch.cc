// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/kernel_switch.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "net/system_call.h"
#include "switch/kernel/attachment.h"
#include "switch/kernel/switch_object.h"

namespace spillway::kernel {

namespace {

std::vector<Program> programs_of(Hook hook, bool adds) {
  switch (hook) {
    case Hook::kXdp:
      return adds ? std::vector{Program::kXdp, Program::kAdmit, Program::kSums}
                  : std::vector{Program::kXdp, Program::kAdmit};
    case Hook::kTc:
      return {Program::kAdmit};
    case Hook::kTcBoth:
      break;
  }
  return {Program::kForward, Program::kAdmit};
}

spillway_hook wanted_hook(Hook hook) {
  switch (hook) {
    case Hook::kXdp:
      return SPILLWAY_HOOK_XDP;
    case Hook::kTc:
      return SPILLWAY_HOOK_TC;
    case Hook::kTcBoth:
      break;
  }
  return SPILLWAY_HOOK_TC_BOTH;
}

bool is_xdp(const spillway_port_label& label) {
  return label.hook == SPILLWAY_HOOK_XDP || label.hook == SPILLWAY_HOOK_GENERIC;
}

spillway_switch_port switch_port_of(const PlannedPort& port, const Interface& interface,
                                    const SwitchOptions& options) {
  return {.config = port.config,
          .link = port.link,
          .ifindex = interface.index,
          .calm_bytes = 0,
          .class_handle = static_cast<std::uint32_t>(options.class_major) << 16};
}

spillway_port_label label_of(const PlannedPort& port, Hook hook, bool adds) {
  spillway_port_label label = {};
  port.name.copy(label.name, sizeof(label.name) - 1);
  port.interface.copy(label.interface, sizeof(label.interface) - 1);
  label.hook = static_cast<std::uint8_t>(wanted_hook(hook));
  label.adds = adds && hook == Hook::kXdp ? 1 : 0;
  return label;
}

base::Status check_different(const SwitchPlan& plan) {
  for (std::size_t i = 0; i < plan.ports.size(); ++i) {
    for (std::size_t j = i + 1; j < plan.ports.size(); ++j) {
      if (plan.ports[i].interface == plan.ports[j].interface) {
        return base::invalid_argument(
            fmt::format("interface {} cannot be two ports", plan.ports[i].interface));
      }
    }
  }
  return {};
}

}  // namespace

// ------------------------------------------------------------------ attaching

base::Result<std::unique_ptr<KernelSwitch>> KernelSwitch::attach(const SwitchPlan& plan,
                                                                 const SwitchOptions& options) {
  const bool adds = plan.adder.config.slots != 0;
  if (base::Status status = check_different(plan); !status.ok()) {
    return status;
  }
  if (adds && options.hook == Hook::kTc) {
    return base::invalid_argument(
        "sums are added up where frames come in, and --hook tc alone decides about them on their "
        "way out: use --hook xdp, or add --forward");
  }
  const ObjectOptions object_options{programs_of(options.hook, adds), options.queues_others,
                                     options.traces, plan.adder.config};
  const base::Result<SwitchObject> object = SwitchObject::load(object_options);
  if (!object.ok()) {
    return object.status();
  }
  base::Result<SwitchMaps> maps = object->maps();
  if (!maps.ok()) {
    return maps.status();
  }
  std::optional<PinFolder> pins;
  if (!options.name.empty()) {
    base::Result<PinFolder> folder = PinFolder::make(PinKind::kSwitch, options.name);
    if (!folder.ok()) {
      return folder.status();
    }
    pins = *folder;
  }
  std::unique_ptr<KernelSwitch> made(new KernelSwitch(std::move(maps).value(), std::move(pins)));
  // Pin before anything is attached: if this process is killed meanwhile, detach() finds all of it.
  made->keep_programs(*object);
  base::Status status = made->pin(object_options);
  if (status.ok()) {
    status = made->maps_.seed_processors();
  }
  if (status.ok()) {
    status = set_up_sums(plan.adder, made->maps_);
  }
  made->adds_ = adds;
  for (std::size_t i = 0; i < plan.ports.size() && status.ok(); ++i) {
    status = made->add_port(plan.ports[i], options);
  }
  if (!status.ok()) {
    made->detach();
    return status;
  }
  return made;
}

void KernelSwitch::keep_programs(const SwitchObject& object) {
  for (const Program which : kPrograms) {
    programs_[static_cast<std::size_t>(which)] =
        net::UniqueFd(::fcntl(object.program_fd(which), F_DUPFD_CLOEXEC, 0));
  }
}

base::Status KernelSwitch::pin(const ObjectOptions& options) const {
  if (!pins_) {
    return {};
  }
  base::Status status;
  for (std::size_t i = 0; i < kMapCount && status.ok(); ++i) {
    const auto map = static_cast<MapName>(i);
    status = pins_->pin(maps_.fd(map), map_name(map));
  }
  for (std::size_t i = 0; i < options.programs.size() && status.ok(); ++i) {
    status = pins_->pin(program(options.programs[i]), program_name(options.programs[i]));
  }
  return status;
}

base::Status KernelSwitch::add_port(const PlannedPort& port, const SwitchOptions& options) {
  const base::Result<Interface> interface = find_interface(port.interface);
  if (!interface.ok()) {
    return interface.status();
  }
  const std::uint32_t number = ports_;
  spillway_port_label label = label_of(port, options.hook, adds_);
  base::Status status = maps_.write_port(number, switch_port_of(port, *interface, options));
  if (status.ok()) {
    status = maps_.write_interface(number, interface->index);
  }
  if (status.ok()) {
    status = maps_.write_label(number, label);
  }
  if (!status.ok()) {
    return status;
  }
  ++ports_;
  status = attach_port(*interface, number, label);
  return status.ok() ? maps_.write_label(number, label) : status;
}

// XDP must find VLAN tags in the frame. Record the setting before changing it, so that detach
// restores it whatever happens.
base::Status KernelSwitch::attach_port_xdp(const Interface& interface, std::uint32_t number,
                                           spillway_port_label& label) {
  const base::Result<std::uint8_t> stripped = stripped_tags(interface);
  if (!stripped.ok()) {
    return stripped.status();
  }
  label.stripped_tags = *stripped;
  label.is_veth = is_veth(interface) ? 1 : 0;
  base::Status status = maps_.write_label(number, label);
  if (status.ok() && *stripped != 0) {
    status = keep_tags(interface, *stripped);
  }
  if (!status.ok()) {
    return status;
  }
  const base::Result<spillway_hook> hook = attach_xdp(program(Program::kXdp), interface);
  if (!hook.ok()) {
    return hook.status();
  }
  label.hook = static_cast<std::uint8_t>(*hook);
  return maps_.write_label(number, label);
}

// Records the qdisc before adding it, so that detach removes it even if this process is killed in
// between.
base::Status KernelSwitch::attach_port_tc(Program which, Direction direction,
                                          const Interface& interface, std::uint32_t number,
                                          spillway_port_label& label) {
  if (label.made_qdisc == 0 && !uses_clsact(interface.index)) {
    label.made_qdisc = 1;
    if (base::Status status = maps_.write_label(number, label); !status.ok()) {
      return status;
    }
  }
  return attach_tc(program(which), interface, direction);
}

base::Status KernelSwitch::attach_port(const Interface& interface, std::uint32_t number,
                                       spillway_port_label& label) {
  base::Status status;
  if (is_xdp(label)) {
    status = attach_port_xdp(interface, number, label);
  }
  if (status.ok()) {
    status = attach_port_tc(Program::kAdmit, Direction::kOut, interface, number, label);
  }
  if (status.ok() && label.hook == SPILLWAY_HOOK_TC_BOTH) {
    status = attach_port_tc(Program::kForward, Direction::kIn, interface, number, label);
  }
  if (status.ok() && label.adds != 0) {
    status = attach_port_tc(Program::kSums, Direction::kIn, interface, number, label);
  }
  return status;
}

// ------------------------------------------------------------------ opening and detaching

base::Result<std::unique_ptr<KernelSwitch>> KernelSwitch::open(const std::string& name) {
  base::Result<PinFolder> pins = PinFolder::open(PinKind::kSwitch, name);
  if (!pins.ok()) {
    return pins.status();
  }
  std::array<net::UniqueFd, kMapCount> fds;
  for (std::size_t i = 0; i < kMapCount; ++i) {
    base::Result<net::UniqueFd> fd = pins->get(map_name(static_cast<MapName>(i)));
    if (!fd.ok()) {
      return fd.status();
    }
    fds[i] = std::move(fd).value();
  }
  std::unique_ptr<KernelSwitch> opened(new KernelSwitch(SwitchMaps(std::move(fds)), *pins));
  while (opened->maps_.label(opened->ports_)) {
    ++opened->ports_;
  }
  for (const Program which : kPrograms) {
    base::Result<net::UniqueFd> fd = pins->get(program_name(which));
    if (fd.ok()) {  // others are not part of this switch
      opened->programs_[static_cast<std::size_t>(which)] = std::move(fd).value();
    }
  }
  return opened;
}

base::Status KernelSwitch::detach(const std::string& name) {
  const base::Result<PinFolder> pins = PinFolder::open(PinKind::kSwitch, name);
  if (!pins.ok()) {
    return pins.status();
  }
  const base::Result<std::unique_ptr<KernelSwitch>> opened = open(name);
  if (opened.ok()) {
    (*opened)->detach();
  } else {
    pins->remove();  // not everything was pinned, so nothing was attached
  }
  return {};
}

std::vector<std::string> KernelSwitch::names() {
  return PinFolder::list(PinKind::kSwitch);
}

KernelSwitch::~KernelSwitch() {
  if (!pins_) {
    detach();
  }
}

void KernelSwitch::detach() {
  while (ports_ > 0) {
    --ports_;
    if (const std::optional<spillway_port_label> label = maps_.label(ports_)) {
      detach_port(ports_, *label);
    }
  }
  if (pins_) {
    pins_->remove();
  }
}

void KernelSwitch::detach_port(std::uint32_t number, const spillway_port_label& label) {
  const std::uint32_t ifindex = maps_.port(number).ifindex;
  if (is_xdp(label)) {
    detach_xdp(program(Program::kXdp), ifindex, static_cast<spillway_hook>(label.hook));
    strip_tags_again(ifindex, label.stripped_tags);
  }
  detach_tc(program(Program::kAdmit), ifindex, Direction::kOut);
  if (label.hook == SPILLWAY_HOOK_TC_BOTH) {
    detach_tc(program(Program::kForward), ifindex, Direction::kIn);
  }
  if (label.adds != 0) {
    detach_tc(program(Program::kSums), ifindex, Direction::kIn);
  }
  if (label.made_qdisc != 0) {
    remove_clsact(ifindex);
  }
}

base::Status KernelSwitch::add_station(const spillway_station& station, std::uint32_t port) {
  return maps_.write_station(station, port);
}

// ------------------------------------------------------------------ reporting

fabric::FabricSnapshot KernelSwitch::snapshot() const {
  fabric::FabricSnapshot snapshot;
  snapshot.taken = base::MonotonicClock().now();
  for (std::uint32_t number = 0; number < ports_; ++number) {
    const spillway_port_tally tally = maps_.tally(number);
    fabric::PortSnapshot& port = snapshot.ports.emplace_back();
    port.name = maps_.label(number).value_or(spillway_port_label{}).name;
    port.counters = tally.counters;
    port.sent_packets = tally.sent_packets;
    port.sent_bytes = tally.sent_bytes;
    port.lost_to_faults = tally.lost;
    port.untouched = tally.untouched;
    port.same_port = tally.same_port;
    for (const std::uint32_t bytes : maps_.virtual_port(number).state.bytes) {
      port.queued_bytes += bytes;
    }
    for (const std::uint64_t packets : tally.counters.packets) {
      snapshot.frames_in += packets;
    }
    snapshot.frames_out += tally.sent_packets;
    snapshot.missed_out += tally.failed;
    snapshot.lost_to_faults += tally.lost;
    snapshot.same_port += tally.same_port;
  }
  if (const spillway_sum_config config = maps_.sum_settings(); config.slots != 0) {
    snapshot.adders.push_back(adder_totals(maps_, config));
  }
  return snapshot;
}

std::vector<std::string> KernelSwitch::notices() const {
  std::vector<std::string> notices;
  for (std::uint32_t number = 0; number < ports_; ++number) {
    const std::optional<spillway_port_label> label = maps_.label(number);
    if (label && label->hook == SPILLWAY_HOOK_GENERIC) {
      notices.push_back(fmt::format(
          "{}: its driver has no XDP; the program runs in the kernel's general part, which is "
          "several times slower. --hook tc may be faster here",
          label->interface));
    }
    if (label && label->is_veth != 0) {
      notices.push_back(fmt::format(
          "{}: a veth; VLAN tags that its far end leaves to a card are lost here. If it sends any: "
          "`ethtool -K FAR_END txvlan off tx-vlan-stag-hw-insert off`, or --hook tc",
          label->interface));
    }
  }
  return notices;
}

namespace {

bool is_traced(int map) {
  bpf_map_info info = {};
  std::uint32_t bytes = sizeof(info);
  return ::bpf_obj_get_info_by_fd(map, &info, &bytes) == 0 && info.max_entries > kUnusedRingBytes;
}

std::vector<std::string> port_names(const SwitchMaps& maps) {
  std::vector<std::string> names;
  while (const std::optional<spillway_port_label> label =
             maps.label(static_cast<std::uint32_t>(names.size()))) {
    names.emplace_back(label->name, ::strnlen(label->name, sizeof(label->name)));
  }
  return names;
}

}  // namespace

void SwitchEvents::Close::operator()(ring_buffer* ring) const {
  ::ring_buffer__free(ring);
}

SwitchEvents::SwitchEvents(std::size_t most) : most_(most) {}

SwitchEvents::~SwitchEvents() = default;

base::Result<std::unique_ptr<SwitchEvents>> SwitchEvents::open(const KernelSwitch& from,
                                                               std::size_t most) {
  const int map = from.maps().fd(MapName::kEvents);
  if (!is_traced(map)) {
    return base::Status(base::StatusCode::kUnavailable,
                        "this switch was attached without --trace and tells nothing of single "
                        "packets: detach it and attach it with --trace");
  }
  std::unique_ptr<SwitchEvents> opened(new SwitchEvents(most));
  opened->ring_.reset(::ring_buffer__new(map, &SwitchEvents::on_event, opened.get(), nullptr));
  if (opened->ring_ == nullptr) {
    return net::system_error("read the switch's events", errno);
  }
  opened->read();
  opened->events_.clear();
  opened->left_out_ = 0;
  opened->ports_ = port_names(from.maps());
  return opened;
}

bool SwitchEvents::read() {
  return ::ring_buffer__consume(ring_.get()) > 0;
}

int SwitchEvents::on_event(void* self, void* data, std::size_t bytes) {
  spillway_event event;
  if (bytes >= sizeof(event)) {
    std::memcpy(&event, data, sizeof(event));
    static_cast<SwitchEvents*>(self)->keep(event);
  }
  return 0;
}

void SwitchEvents::keep(const spillway_event& event) {
  if (events_.size() < most_) {
    events_.push_back(event);
  } else {
    ++left_out_;
  }
}

}  // namespace spillway::kernel
