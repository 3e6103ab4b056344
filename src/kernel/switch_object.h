// SPDX-License-Identifier: Apache-2.0
//
// The switch's programs (src/dataplane/bpf/switch.bpf.c) loaded into the kernel with their options:
// from here on they are verified and have maps, but are attached nowhere. What is not attached or
// pinned goes with this object.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernel/switch_maps.h"

struct switch_bpf;  // the skeleton that bpftool writes

namespace spillway::kernel {

enum class Program : std::uint8_t { kXdp, kForward, kAdmit, kSums };
inline constexpr std::array<Program, 4> kPrograms = {Program::kXdp, Program::kForward,
                                                     Program::kAdmit, Program::kSums};
// Its name in switch.bpf.c, and of its pin.
const char* program_name(Program program);

// Of the ring of events where nothing is told: the least there is.
inline constexpr std::uint32_t kUnusedRingBytes = 4096;

struct ObjectOptions {
  std::vector<Program> programs;  // others are not loaded
  bool queues_others = false;     // frames that are not Spillway's share the queues
  bool traces = false;            // tell of every Spillway packet in the map of events
  spillway_sum_config sums = {};  // kXdp: adds sum packets up, and needs kSums to be attached, too
};

class SwitchObject {
 public:
  static base::Result<SwitchObject> load(const ObjectOptions& options);
  ~SwitchObject();
  SwitchObject(SwitchObject&&) noexcept;
  SwitchObject& operator=(SwitchObject&&) noexcept;

  // -1 where it was not loaded.
  int program_fd(Program program) const;
  // Descriptors of their own: they stay when this object goes.
  base::Result<SwitchMaps> maps() const;

 private:
  struct Close {
    void operator()(switch_bpf* skeleton) const;
  };
  explicit SwitchObject(switch_bpf* skeleton);

  std::unique_ptr<switch_bpf, Close> skeleton_;
};

}  // namespace spillway::kernel
