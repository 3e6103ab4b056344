// SPDX-License-Identifier: Apache-2.0
//
// The switch's programs (switch/dataplane/bpf/switch.bpf.c), loaded into the kernel with their
// options: verified and with maps, but not attached. What is neither attached nor pinned ends with
// this object.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "switch/kernel/switch_maps.h"

struct switch_bpf;  // the skeleton that bpftool writes

namespace spillway::kernel {

enum class Program : std::uint8_t { kXdp, kForward, kAdmit, kSums };
inline constexpr std::array<Program, 4> kPrograms = {Program::kXdp, Program::kForward,
                                                     Program::kAdmit, Program::kSums};
// The program's name in switch.bpf.c, and the name of its pin.
const char* program_name(Program program);

// Smallest possible ring of events, for switches that report nothing.
inline constexpr std::uint32_t kUnusedRingBytes = 4096;

struct ObjectOptions {
  std::vector<Program> programs;  // others are not loaded
  bool queues_others = false;     // other traffic shares the queues
  bool traces = false;            // report every Spillway packet in the map of events
  spillway_sum_config sums = {};  // kXdp: adds sum packets; kSums must be attached, too
};

class SwitchObject {
 public:
  static base::Result<SwitchObject> load(const ObjectOptions& options);
  ~SwitchObject();
  SwitchObject(SwitchObject&&) noexcept;
  SwitchObject& operator=(SwitchObject&&) noexcept;

  // -1 if the program was not loaded.
  int program_fd(Program program) const;
  // Duplicated descriptors, which stay valid after this object.
  base::Result<SwitchMaps> maps() const;

 private:
  struct Close {
    void operator()(switch_bpf* skeleton) const;
  };
  explicit SwitchObject(switch_bpf* skeleton);

  std::unique_ptr<switch_bpf, Close> skeleton_;
};

}  // namespace spillway::kernel
