// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/host_fixup.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>

#include <array>
#include <cerrno>
#include <memory>
#include <numeric>

#include "net/system_call.h"
#include "switch/dataplane/bpf/fixup.skel.h"
#include "switch/dataplane/fixup.h"
#include "switch/kernel/attachment.h"
#include "switch/kernel/program_loading.h"

namespace spillway::kernel {
namespace {

constexpr std::string_view kProgramPin = "spillway_fixup";
constexpr std::string_view kCountersPin = "fixups";

struct CloseFixup {
  void operator()(fixup_bpf* skeleton) const { fixup_bpf__destroy(skeleton); }
};
using Fixup = std::unique_ptr<fixup_bpf, CloseFixup>;

base::Result<Fixup> load_skeleton() {
  if (base::Status status = check_kernel(); !status.ok()) {
    return status;
  }
  const LoadLog log;
  Fixup fixup(fixup_bpf__open());
  if (fixup == nullptr) {
    return load_error("open the fix-up", errno, log);
  }
  fixup->rodata->has_fragments = allow_fragments(fixup->progs.spillway_fixup) ? 1 : 0;
  if (const int error = fixup_bpf__load(fixup.get()); error != 0) {
    return load_error("load the fix-up", -error, log);
  }
  return fixup;
}

base::Status pin(const PinFolder& pins, const fixup_bpf& fixup) {
  base::Status status = pins.pin(::bpf_program__fd(fixup.progs.spillway_fixup), kProgramPin);
  return status.ok() ? pins.pin(::bpf_map__fd(fixup.maps.fixups), kCountersPin) : status;
}

std::uint64_t count_of(int map, std::uint32_t outcome) {
  std::vector<std::uint64_t> parts(static_cast<std::size_t>(::libbpf_num_possible_cpus()));
  (void)::bpf_map_lookup_elem(map, &outcome, parts.data());
  return std::accumulate(parts.begin(), parts.end(), std::uint64_t{0});
}

}  // namespace

base::Result<FixupAttached> attach_fixup(const std::string& name) {
  const base::Result<Interface> interface = find_interface(name);
  if (!interface.ok()) {
    return interface.status();
  }
  const base::Result<Fixup> fixup = load_skeleton();
  if (!fixup.ok()) {
    return fixup.status();
  }
  const base::Result<PinFolder> pins = PinFolder::make(PinKind::kFixup, name);
  if (!pins.ok()) {
    return pins.status();
  }
  base::Status status = pin(*pins, **fixup);
  if (status.ok()) {
    const base::Result<spillway_hook> hook =
        attach_xdp(::bpf_program__fd((*fixup)->progs.spillway_fixup), *interface);
    if (hook.ok()) {
      return FixupAttached{.in_driver = *hook == SPILLWAY_HOOK_XDP};
    }
    status = hook.status();
  }
  pins->remove();
  return status;
}

base::Status detach_fixup(const std::string& name) {
  const base::Result<PinFolder> pins = PinFolder::open(PinKind::kFixup, name);
  if (!pins.ok()) {
    return pins.status();
  }
  const base::Result<net::UniqueFd> program = pins->get(kProgramPin);
  const base::Result<Interface> interface = find_interface(name);
  if (program.ok() && interface.ok()) {
    for (const spillway_hook hook : {SPILLWAY_HOOK_XDP, SPILLWAY_HOOK_GENERIC}) {
      detach_xdp(program->get(), interface->index, hook);
    }
  }
  pins->remove();
  return {};
}

base::Result<FixupCounters> fixup_counters(const std::string& name) {
  const base::Result<PinFolder> pins = PinFolder::open(PinKind::kFixup, name);
  if (!pins.ok()) {
    return pins.status();
  }
  const base::Result<net::UniqueFd> map = pins->get(kCountersPin);
  if (!map.ok()) {
    return map.status();
  }
  return FixupCounters{.passed = count_of(map->get(), SPILLWAY_FIXUP_NOT_NEEDED),
                       .fixed = count_of(map->get(), SPILLWAY_FIXUP_DONE),
                       .refused = count_of(map->get(), SPILLWAY_FIXUP_REFUSED)};
}

base::Result<net::UniqueFd> load_fixup() {
  const base::Result<Fixup> fixup = load_skeleton();
  if (!fixup.ok()) {
    return fixup.status();
  }
  const int program = ::bpf_program__fd((*fixup)->progs.spillway_fixup);
  net::UniqueFd kept(::fcntl(program, F_DUPFD_CLOEXEC, 0));
  if (!kept.valid()) {
    return net::system_error("keep the fix-up", errno);
  }
  return kept;
}

std::vector<std::string> fixed_up_interfaces() {
  return PinFolder::list(PinKind::kFixup);
}

}  // namespace spillway::kernel
