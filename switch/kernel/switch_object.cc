// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/switch_object.h"

#include <bpf/libbpf.h>
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "net/system_call.h"
#include "switch/dataplane/bpf/switch.skel.h"
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

}  // namespace spillway::kernel
