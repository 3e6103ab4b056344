// SPDX-License-Identifier: Apache-2.0
//
// This folder's interface in builds without eBPF (cmake/SpillwayBpf.cmake).
#include "switch/kernel/host_fixup.h"
#include "switch/kernel/kernel_switch.h"
#include "switch/kernel/measure/live_switch.h"
#include "switch/kernel/measure/program_costs.h"

namespace spillway::kernel {
namespace {

base::Status absent() {
  return {base::StatusCode::kUnavailable,
          "this build of Spillway has no eBPF programs: install libbpf-dev and build it again, or "
          "use the switch in user space (`spillway switch run`)"};
}

}  // namespace

base::Result<std::unique_ptr<KernelSwitch>> KernelSwitch::attach(const SwitchPlan&,
                                                                 const SwitchOptions&) {
  return absent();
}
base::Result<std::unique_ptr<KernelSwitch>> KernelSwitch::open(const std::string&) {
  return absent();
}
base::Status KernelSwitch::detach(const std::string&) {
  return absent();
}
std::vector<std::string> KernelSwitch::names() {
  return {};
}
KernelSwitch::~KernelSwitch() = default;
void KernelSwitch::detach() {}
base::Status KernelSwitch::add_station(const spillway_station&, std::uint32_t) {
  return absent();
}
fabric::FabricSnapshot KernelSwitch::snapshot() const {
  return {};
}
std::vector<std::string> KernelSwitch::notices() const {
  return {};
}

base::Result<FixupAttached> attach_fixup(const std::string&) {
  return absent();
}
base::Status detach_fixup(const std::string&) {
  return absent();
}
base::Result<FixupCounters> fixup_counters(const std::string&) {
  return absent();
}
std::vector<std::string> fixed_up_interfaces() {
  return {};
}

base::Result<std::vector<ProgramCost>> measure_program_costs(
    const CostOptions&, const std::function<void(std::string_view)>&) {
  return absent();
}
std::size_t cost_steps(const CostOptions&) {
  return 0;
}
base::Result<std::vector<ProgramCost>> measure_sum_costs(
    const CostOptions&, const std::function<void(std::string_view)>&) {
  return absent();
}
std::size_t sum_cost_steps(const CostOptions&) {
  return 0;
}

base::Result<std::unique_ptr<LiveSwitch>> LiveSwitch::attach(const LiveSwitchOptions&) {
  return absent();
}

base::Result<std::unique_ptr<SwitchEvents>> SwitchEvents::open(const KernelSwitch&, std::size_t) {
  return absent();
}
SwitchEvents::~SwitchEvents() = default;
void SwitchEvents::Close::operator()(ring_buffer*) const {}
bool SwitchEvents::read() {
  return false;
}

}  // namespace spillway::kernel
