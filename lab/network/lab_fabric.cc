// SPDX-License-Identifier: Apache-2.0
#include "lab/network/lab_fabric.h"

#include <netinet/ether.h>

#include <algorithm>

#include "lab/network/links.h"
#include "switch/kernel/switch_plan.h"

namespace spillway::lab {
namespace {

spillway_station station_of(const HostEntry& host) {
  spillway_station station = {};
  ether_addr address = {};
  // Generated text, so it parses.
  ::ether_aton_r(host.mac.c_str(), &address);
  std::ranges::copy(address.ether_addr_octet, station.address);
  return station;
}

base::Result<std::unique_ptr<kernel::KernelSwitch>> attach_switch(
    const scenario::Scenario& scenario, const HostPlan& plan,
    std::span<const fabric::PortAttachment> ports, bool traces) {
  const base::Result<kernel::SwitchPlan> switch_plan = kernel::plan_switch(scenario, ports);
  if (!switch_plan.ok()) {
    return switch_plan.status();
  }
  base::Result<std::unique_ptr<kernel::KernelSwitch>> made =
      kernel::KernelSwitch::attach(*switch_plan, {.hook = kernel::Hook::kTcBoth,
                                                  .queues_others = true,
                                                  .traces = traces,
                                                  .class_major = kPortQueuesMajor});
  if (!made.ok()) {
    return made;
  }
  base::Status status = set_up_port_queues(plan, scenario.port);
  for (std::uint32_t i = 0; i < plan.hosts.size() && status.ok(); ++i) {
    status = (*made)->add_station(station_of(plan.hosts[i]), i);
  }
  return status.ok() ? std::move(made) : status;
}

}  // namespace

std::string_view dataplane_name(Dataplane dataplane) {
  switch (dataplane) {
    case Dataplane::kAuto:
      return "auto";
    case Dataplane::kBpf:
      return "bpf";
    case Dataplane::kUser:
      break;
  }
  return "user";
}

base::Result<LabFabric> LabFabric::make(Dataplane wanted, const scenario::Scenario& scenario,
                                        const HostPlan& plan,
                                        std::span<const fabric::PortAttachment> ports,
                                        bool traces) {
  LabFabric fabric;
  if (wanted == Dataplane::kBpf) {
    base::Result<std::unique_ptr<kernel::KernelSwitch>> made =
        attach_switch(scenario, plan, ports, traces);
    if (!made.ok()) {
      return made.status();
    }
    fabric.kernel_ = std::move(made).value();
    return fabric;
  }
  base::Result<std::unique_ptr<fabric::FabricThread>> made =
      fabric::FabricThread::make(scenario, ports);
  if (!made.ok()) {
    return made.status();
  }
  fabric.user_ = std::move(made).value();
  return fabric;
}

base::Status LabFabric::finish() {
  return user_ ? user_->finish() : base::Status();
}

fabric::FabricSnapshot LabFabric::snapshot() const {
  return user_ ? user_->snapshot() : kernel_->snapshot();
}

}  // namespace spillway::lab
