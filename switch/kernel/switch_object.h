// SPDX-License-Identifier: Apache-2.0
//
// The switch's programs (switch/dataplane/bpf/switch.bpf.c), loaded into the kernel with their
// options: verified and with maps, but not attached. A program neither attached nor pinned ends
// with this object.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/system_call.h"
#include "sim/scenario/topology.h"
#include "switch/dataplane/bpf/sum_maps.h"
#include "switch/dataplane/bpf/switch_maps.h"
#include "switch/fabric/emulator.h"

// The maps of one kernel switch, by file descriptor, and their contents as values. A map lives
// while somebody has it open, a program uses it, or it is pinned; this object keeps its maps open.
// Reading takes no lock and is safe from any thread.

namespace spillway::kernel {

enum class MapName : std::uint8_t {
  kPorts,
  kSlots,
  kTallies,
  kProcessors,
  kPortNumbers,
  kStations,
  kDevices,
  kEvents,
  kLabels,
  kSumSlots,
  kSumDirectory,
  kSumJobs,
  kSumTallies,
  kSumSettings
};
inline constexpr std::size_t kMapCount = 14;
// The map's name in switch.bpf.c, and the name of its pin.
std::string_view map_name(MapName map);

class SwitchMaps {
 public:
  // Takes ownership of the descriptors.
  explicit SwitchMaps(std::array<net::UniqueFd, kMapCount> fds) : fds_(std::move(fds)) {}

  int fd(MapName map) const { return fds_[static_cast<std::size_t>(map)].get(); }

  // Fills in calm_bytes.
  base::Status write_port(std::uint32_t number, spillway_switch_port port);
  base::Status write_label(std::uint32_t port, const spillway_port_label& label);
  base::Status write_station(const spillway_station& station, std::uint32_t port);
  // Registers the interface with this index as the port's.
  base::Status write_interface(std::uint32_t port, std::uint32_t ifindex);
  // Gives every CPU a random state of its own.
  base::Status seed_processors();

  spillway_switch_port port(std::uint32_t number) const;
  // Null if there is no such port.
  std::optional<spillway_port_label> label(std::uint32_t port) const;
  // Sum over all CPUs.
  spillway_port_tally tally(std::uint32_t port) const;
  // The port with its queues as of now.
  spillway_virtual_port virtual_port(std::uint32_t number) const;

  // Used by KernelSwitch: the config for adding, and its jobs.
  base::Status write_sum_settings(const spillway_sum_config& config);
  base::Status write_sum_directory(const spillway_sum_directory& directory);
  base::Status write_sum_job(const spillway_sum_job& job);
  spillway_sum_config sum_settings() const;
  spillway_sum_directory sum_directory() const;
  spillway_sum_job sum_job(std::uint32_t row) const;
  // Sums over all CPUs: for the job of that name in this row, or for all jobs.
  spillway_sum_counters sum_counters(std::uint32_t row, std::uint32_t name) const;
  spillway_sum_counters sum_counters() const;

 private:
  base::Status update(MapName map, const void* key, const void* value);
  // Tallies by CPU.
  std::vector<spillway_sum_tally> sum_tallies(std::uint32_t row) const;

  std::array<net::UniqueFd, kMapCount> fds_;
};

}  // namespace spillway::kernel

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

// User-space side of adding in a kernel switch: writes the limits of jobs to its maps, and reads
// its counters. No state.

namespace spillway::kernel {

// Call before anything is attached. Fails if too many jobs have limits.
base::Status set_up_sums(const scenario::Adder& adder, SwitchMaps& maps);

// `config` must be the one in the maps.
sim::AdderTotals adder_totals(const SwitchMaps& maps, const spillway_sum_config& config);

}  // namespace spillway::kernel
