// SPDX-License-Identifier: Apache-2.0
//
// What carries frames between a lab's hosts:
//
//   kBpf   the switch in the kernel: hosts and switch share one kernel, and all traffic shares the
//          queues. Needs root and a scenario of one switch (kernel/switch_plan.h)
//   kUser  the emulated fabric in user space (fabric/emulator.h): any scenario, any isolation
//   kAuto  the first of these that is possible
//
// Create and use it on a thread in the fabric's network namespace. It ends with the namespace.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "lab/network/host_plan.h"
#include "sim/scenario/scenario.h"
#include "switch/fabric/fabric_thread.h"
#include "switch/kernel/kernel_switch.h"

namespace spillway::lab {

enum class Dataplane : std::uint8_t { kAuto, kBpf, kUser };
std::string_view dataplane_name(Dataplane dataplane);

class LabFabric {
 public:
  // `wanted` is kBpf or kUser. For kBpf the hosts' links must be up, with one interface each; the
  // switch then reports every packet if `traces`.
  static base::Result<LabFabric> make(Dataplane wanted, const scenario::Scenario& scenario,
                                      const HostPlan& plan,
                                      std::span<const fabric::PortAttachment> ports, bool traces);

  Dataplane dataplane() const { return kernel_ ? Dataplane::kBpf : Dataplane::kUser; }
  // Null if the fabric is in user space.
  const kernel::KernelSwitch* kernel_switch() const { return kernel_.get(); }
  // Becomes readable when the fabric ends by itself; -1: it never does.
  int stop_fd() const { return user_ ? user_->stop_fd() : -1; }
  // Stops the fabric and returns its status.
  base::Status finish();
  fabric::FabricSnapshot snapshot() const;

 private:
  LabFabric() = default;

  std::unique_ptr<fabric::FabricThread> user_;
  std::unique_ptr<kernel::KernelSwitch> kernel_;
};

}  // namespace spillway::lab
