// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/switch_maps.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "net/system_call.h"
#include "switch/dataplane/port_config.h"

namespace spillway::kernel {
namespace {

void add_tally(const spillway_port_tally& from, spillway_port_tally& to) {
  dataplane::add_counters(from.counters, to.counters);
  to.sent_packets += from.sent_packets;
  to.sent_bytes += from.sent_bytes;
  to.lost += from.lost;
  to.untouched += from.untouched;
  to.failed += from.failed;
  to.same_port += from.same_port;
}

}  // namespace

std::string_view map_name(MapName map) {
  constexpr std::array<std::string_view, kMapCount> kNames = {
      "ports",         "slots",    "tallies",     "processors",  "port_numbers",
      "stations",      "devices",  "events",      "labels",      "sum_slots",
      "sum_directory", "sum_jobs", "sum_tallies", "sum_settings"};
  return kNames[static_cast<std::size_t>(map)];
}

base::Status SwitchMaps::update(MapName map, const void* key, const void* value) {
  if (::bpf_map_update_elem(fd(map), key, value, BPF_ANY) == 0) {
    return {};
  }
  return net::system_error(fmt::format("write the switch's map of {}", map_name(map)), errno);
}

base::Status SwitchMaps::write_port(std::uint32_t number, spillway_switch_port port) {
  port.calm_bytes = spillway_calm_bytes(&port.config);
  return update(MapName::kPorts, &number, &port);
}

base::Status SwitchMaps::write_label(std::uint32_t port, const spillway_port_label& label) {
  return update(MapName::kLabels, &port, &label);
}

base::Status SwitchMaps::write_station(const spillway_station& station, std::uint32_t port) {
  return update(MapName::kStations, &station, &port);
}

base::Status SwitchMaps::write_interface(std::uint32_t port, std::uint32_t ifindex) {
  base::Status status = update(MapName::kPortNumbers, &ifindex, &port);
  return status.ok() ? update(MapName::kDevices, &port, &ifindex) : status;
}

base::Status SwitchMaps::seed_processors() {
  std::vector<spillway_processor> processors(
      static_cast<std::size_t>(::libbpf_num_possible_cpus()));
  for (spillway_processor& processor : processors) {
    std::array<std::uint8_t, sizeof(processor.random_state)> drawn;
    if (base::Status status = net::fill_random(drawn); !status.ok()) {
      return status;
    }
    std::memcpy(&processor.random_state, drawn.data(), drawn.size());
    processor.random_state |= 1;  // never zero
  }
  const std::uint32_t zero = 0;
  return update(MapName::kProcessors, &zero, processors.data());
}

spillway_switch_port SwitchMaps::port(std::uint32_t number) const {
  spillway_switch_port port = {};
  (void)::bpf_map_lookup_elem(fd(MapName::kPorts), &number, &port);
  return port;
}

std::optional<spillway_port_label> SwitchMaps::label(std::uint32_t port) const {
  spillway_port_label label = {};
  if (port >= SPILLWAY_MAX_PORTS ||
      ::bpf_map_lookup_elem(fd(MapName::kLabels), &port, &label) != 0 || label.name[0] == '\0') {
    return std::nullopt;
  }
  return label;
}

spillway_port_tally SwitchMaps::tally(std::uint32_t port) const {
  static_assert(sizeof(spillway_port_tally) % 8 == 0);  // the kernel's layout
  std::vector<spillway_port_tally> parts(static_cast<std::size_t>(::libbpf_num_possible_cpus()));
  spillway_port_tally sum = {};
  if (::bpf_map_lookup_elem(fd(MapName::kTallies), &port, parts.data()) == 0) {
    for (const spillway_port_tally& part : parts) {
      add_tally(part, sum);
    }
  }
  return sum;
}

spillway_virtual_port SwitchMaps::virtual_port(std::uint32_t number) const {
  spillway_port_slot slot = {};
  if (::bpf_map_lookup_elem_flags(fd(MapName::kSlots), &number, &slot, BPF_F_LOCK) != 0) {
    return {};
  }
  const spillway_switch_port of = port(number);
  const auto now = static_cast<std::uint64_t>(base::MonotonicClock().now().since_zero().count());
  spillway_drain(&of.config, &of.link, &slot.port, now);
  return slot.port;
}

// ------------------------------------------------------------------ sums

base::Status SwitchMaps::write_sum_settings(const spillway_sum_config& config) {
  const std::uint32_t zero = 0;
  return update(MapName::kSumSettings, &zero, &config);
}

base::Status SwitchMaps::write_sum_directory(const spillway_sum_directory& directory) {
  const std::uint32_t zero = 0;
  return update(MapName::kSumDirectory, &zero, &directory);
}

base::Status SwitchMaps::write_sum_job(const spillway_sum_job& job) {
  return update(MapName::kSumJobs, &job.row, &job);
}

spillway_sum_config SwitchMaps::sum_settings() const {
  const std::uint32_t zero = 0;
  spillway_sum_config config = {};
  (void)::bpf_map_lookup_elem(fd(MapName::kSumSettings), &zero, &config);
  return config;
}

spillway_sum_directory SwitchMaps::sum_directory() const {
  const std::uint32_t zero = 0;
  spillway_sum_directory directory = {};
  (void)::bpf_map_lookup_elem(fd(MapName::kSumDirectory), &zero, &directory);
  return directory;
}

spillway_sum_job SwitchMaps::sum_job(std::uint32_t row) const {
  spillway_sum_job job = {};
  (void)::bpf_map_lookup_elem(fd(MapName::kSumJobs), &row, &job);
  return job;
}

std::vector<spillway_sum_tally> SwitchMaps::sum_tallies(std::uint32_t row) const {
  static_assert(sizeof(spillway_sum_tally) % 8 == 0);  // the kernel's layout
  std::vector<spillway_sum_tally> tallies(static_cast<std::size_t>(::libbpf_num_possible_cpus()));
  if (::bpf_map_lookup_elem(fd(MapName::kSumTallies), &row, tallies.data()) != 0) {
    tallies.clear();
  }
  return tallies;
}

spillway_sum_counters SwitchMaps::sum_counters(std::uint32_t row, std::uint32_t name) const {
  spillway_sum_counters sum = {};
  for (const spillway_sum_tally& tally : sum_tallies(row)) {
    if (tally.name == name) {
      spillway_add_sum_counters(&tally.counters, &sum);
    }
  }
  return sum;
}

spillway_sum_counters SwitchMaps::sum_counters() const {
  spillway_sum_counters sum = {};
  for (std::uint32_t row = 0; row < SPILLWAY_SUM_TALLIES; ++row) {
    for (const spillway_sum_tally& tally : sum_tallies(row)) {
      spillway_add_sum_counters(&tally.counters, &sum);
    }
  }
  return sum;
}

}  // namespace spillway::kernel
