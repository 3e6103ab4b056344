// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/switch_object.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "net/system_call.h"
#include "switch/dataplane/bpf/switch.skel.h"
#include "switch/dataplane/port_config.h"
#include "switch/kernel/program_loading.h"

namespace spillway::kernel {

namespace {

bpf_program* program_of(const switch_bpf& skeleton, Program program) {
  switch (program) {
    case Program::kXdp:
      return skeleton.progs.spillway_xdp;
    case Program::kForward:
      return skeleton.progs.spillway_forward;
    case Program::kSums:
      return skeleton.progs.spillway_sums;
    case Program::kAdmit:
      break;
  }
  return skeleton.progs.spillway_admit_frame;
}

// Without adding, the maps for sums are as small as possible.
void apply_sums(const spillway_sum_config& sums, switch_bpf& skeleton) {
  skeleton.rodata->sum_config = sums;
  const bool adds = sums.slots != 0;
  ::bpf_map__set_max_entries(skeleton.maps.sum_slots, std::max(sums.slots, 1U));
  ::bpf_map__set_max_entries(skeleton.maps.sum_jobs, adds ? SPILLWAY_SUM_JOBS : 1);
}

void apply(const ObjectOptions& options, switch_bpf& skeleton) {
  for (const Program program : kPrograms) {
    const bool wanted = std::ranges::find(options.programs, program) != options.programs.end();
    ::bpf_program__set_autoload(program_of(skeleton, program), wanted);
  }
  skeleton.rodata->queue_others = options.queues_others ? 1 : 0;
  skeleton.rodata->trace_frames = options.traces ? 1 : 0;
  if (!options.traces) {
    ::bpf_map__set_max_entries(skeleton.maps.events, kUnusedRingBytes);
  }
  apply_sums(options.sums, skeleton);
  skeleton.rodata->has_fragments = allow_fragments(skeleton.progs.spillway_xdp) ? 1 : 0;
}

}  // namespace

const char* program_name(Program program) {
  constexpr std::array<const char*, kPrograms.size()> kNames = {
      "spillway_xdp", "spillway_forward", "spillway_admit_frame", "spillway_sums"};
  return kNames[static_cast<std::size_t>(program)];
}

void SwitchObject::Close::operator()(switch_bpf* skeleton) const {
  switch_bpf__destroy(skeleton);
}

SwitchObject::SwitchObject(switch_bpf* skeleton) : skeleton_(skeleton) {}
SwitchObject::~SwitchObject() = default;
SwitchObject::SwitchObject(SwitchObject&&) noexcept = default;
SwitchObject& SwitchObject::operator=(SwitchObject&&) noexcept = default;

base::Result<SwitchObject> SwitchObject::load(const ObjectOptions& options) {
  if (base::Status status = check_kernel(); !status.ok()) {
    return status;
  }
  const LoadLog log;
  SwitchObject object(switch_bpf__open());
  if (object.skeleton_ == nullptr) {
    return load_error("open the switch's programs", errno, log);
  }
  apply(options, *object.skeleton_);
  const int error = switch_bpf__load(object.skeleton_.get());
  if (error == -ENOMEM && options.sums.slots > 1) {
    return base::Status(
        base::StatusCode::kUnavailable,
        fmt::format("the kernel has no memory for {} slots, which take {} MB: use fewer",
                    options.sums.slots,
                    options.sums.slots * sizeof(spillway_sum_entry) / 1'000'000 + 1));
  }
  if (error != 0) {
    return load_error("load the switch's programs", -error, log);
  }
  return object;
}

int SwitchObject::program_fd(Program program) const {
  return ::bpf_program__fd(program_of(*skeleton_, program));
}

base::Result<SwitchMaps> SwitchObject::maps() const {
  std::array<net::UniqueFd, kMapCount> fds;
  for (std::size_t i = 0; i < kMapCount; ++i) {
    const std::string name(map_name(static_cast<MapName>(i)));
    const int fd = ::bpf_object__find_map_fd_by_name(skeleton_->obj, name.c_str());
    fds[i] = net::UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!fds[i].valid()) {
      return net::system_error("keep the switch's map of " + name, errno);
    }
  }
  return SwitchMaps(std::move(fds));
}

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

namespace {

base::Result<spillway_sum_job> fix_job(const scenario::JobSlots& limit,
                                       spillway_sum_directory& directory) {
  const std::uint32_t name = spillway_sum_name(limit.job);
  const std::uint32_t row = spillway_find_row(&directory, name, 0, 0);
  if (row == SPILLWAY_SUM_NO_JOB) {
    return base::invalid_argument(
        fmt::format("a limit for job {}: too many jobs have one", limit.job));
  }
  directory.seen_s[row] = SPILLWAY_SUM_JOB_FIXED;
  spillway_sum_job job = {};
  spillway_open_job(&job, row, name);
  job.limit = limit.slots;
  return job;
}

}  // namespace

base::Status set_up_sums(const scenario::Adder& adder, SwitchMaps& maps) {
  base::Status status = maps.write_sum_settings(adder.config);
  spillway_sum_directory directory = {};
  for (std::size_t i = 0; i < adder.limits.size() && status.ok(); ++i) {
    const base::Result<spillway_sum_job> job = fix_job(adder.limits[i], directory);
    status = job.ok() ? maps.write_sum_job(*job) : job.status();
  }
  return status.ok() ? maps.write_sum_directory(directory) : status;
}

sim::AdderTotals adder_totals(const SwitchMaps& maps, const spillway_sum_config& config) {
  sim::AdderTotals totals;
  totals.config = config;
  totals.counters = maps.sum_counters();
  if (const std::optional<spillway_port_label> label = maps.label(0)) {
    const std::string_view port = label->name;
    totals.name = port.substr(0, port.find("->"));
  }
  const spillway_sum_directory directory = maps.sum_directory();
  for (std::uint32_t row = 0; row < SPILLWAY_SUM_JOBS; ++row) {
    const std::uint32_t name = directory.names[row];
    if (name == 0) {
      continue;
    }
    const spillway_sum_job job = maps.sum_job(row);
    totals.jobs.push_back({.job = static_cast<std::uint16_t>(name - 1),
                           .held = job.held,
                           .limit = job.limit,
                           .counters = maps.sum_counters(row, name)});
    totals.held += job.held;
  }
  std::ranges::sort(totals.jobs, {}, &sim::SumJobTotals::job);
  return totals;
}

}  // namespace spillway::kernel
