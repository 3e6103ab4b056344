// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/attachment.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/if_link.h>
#include <net/if.h>

#include <cerrno>

#include "net/system_call.h"
#include "switch/kernel/program_loading.h"

namespace spillway::kernel {
namespace {

// Identify this library's filter among those of an interface.
constexpr std::uint32_t kTcPriority = 7077;
constexpr std::uint32_t kTcHandle = 1;

bpf_tc_hook hook_of(std::uint32_t ifindex, Direction direction) {
  bpf_tc_hook hook = {};
  hook.sz = sizeof(hook);
  hook.ifindex = static_cast<int>(ifindex);
  hook.attach_point = direction == Direction::kIn ? BPF_TC_INGRESS : BPF_TC_EGRESS;
  return hook;
}

bpf_tc_opts own_filter() {
  bpf_tc_opts options = {};
  options.sz = sizeof(options);
  options.handle = kTcHandle;
  options.priority = kTcPriority;
  return options;
}

// Returns 0 if there is no such program.
std::uint32_t program_id(int program_fd) {
  bpf_prog_info info = {};
  std::uint32_t bytes = sizeof(info);
  return ::bpf_obj_get_info_by_fd(program_fd, &info, &bytes) == 0 ? info.id : 0;
}

std::string_view busy_hint(int error) {
  return error == EBUSY || error == EEXIST
             ? "another program is attached there; `bpftool net` lists it"
             : "";
}

base::Status attach_error(const Interface& interface, std::string_view hook, int error,
                          const LoadLog& log) {
  const std::string attempt = fmt::format("attach to {} at {}", interface.name, hook);
  if (const std::string_view hint = busy_hint(error); !hint.empty()) {
    return net::system_error(attempt, error, hint);
  }
  return load_error(attempt, error, log);
}

}  // namespace

base::Result<Interface> find_interface(const std::string& name) {
  const std::uint32_t index = ::if_nametoindex(name.c_str());
  if (index == 0) {
    return base::Status(base::StatusCode::kUnavailable,
                        fmt::format("there is no interface {} here; `ip link` lists them", name));
  }
  return Interface{name, index};
}

base::Result<spillway_hook> attach_xdp(int program_fd, const Interface& interface) {
  const LoadLog log;
  const int index = static_cast<int>(interface.index);
  int error = ::bpf_xdp_attach(index, program_fd, XDP_FLAGS_UPDATE_IF_NOEXIST | XDP_FLAGS_DRV_MODE,
                               nullptr);
  if (error == 0) {
    return SPILLWAY_HOOK_XDP;
  }
  if (error == -EOPNOTSUPP) {
    error = ::bpf_xdp_attach(index, program_fd, XDP_FLAGS_UPDATE_IF_NOEXIST | XDP_FLAGS_SKB_MODE,
                             nullptr);
  }
  return error == 0 ? base::Result<spillway_hook>(SPILLWAY_HOOK_GENERIC)
                    : attach_error(interface, "XDP", -error, log);
}

void detach_xdp(int program_fd, std::uint32_t ifindex, spillway_hook hook) {
  const LoadLog log;
  bpf_xdp_attach_opts options = {};
  options.sz = sizeof(options);
  options.old_prog_fd = program_fd;
  const std::uint32_t mode =
      hook == SPILLWAY_HOOK_GENERIC ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE;
  (void)::bpf_xdp_detach(static_cast<int>(ifindex), mode, &options);
}

base::Status attach_tc(int program_fd, const Interface& interface, Direction direction) {
  const LoadLog log;
  bpf_tc_hook hook = hook_of(interface.index, direction);
  const int made = ::bpf_tc_hook_create(&hook);
  if (made != 0 && made != -EEXIST) {
    return attach_error(interface, "tc (clsact)", -made, log);
  }
  bpf_tc_opts options = own_filter();
  options.prog_fd = program_fd;
  if (const int error = ::bpf_tc_attach(&hook, &options); error != 0) {
    if (made == 0) {
      remove_clsact(interface.index);
    }
    return attach_error(interface, "tc", -error, log);
  }
  return {};
}

void detach_tc(int program_fd, std::uint32_t ifindex, Direction direction) {
  const LoadLog log;
  const bpf_tc_hook hook = hook_of(ifindex, direction);
  bpf_tc_opts found = own_filter();
  if (::bpf_tc_query(&hook, &found) != 0 || found.prog_id != program_id(program_fd)) {
    return;
  }
  const bpf_tc_opts options = own_filter();
  (void)::bpf_tc_detach(&hook, &options);
}

bool uses_clsact(std::uint32_t ifindex) {
  const LoadLog log;
  const auto has_chain = [ifindex](Direction direction) {
    const bpf_tc_hook hook = hook_of(ifindex, direction);
    bpf_tc_opts found = own_filter();
    return ::bpf_tc_query(&hook, &found) != -EINVAL;  // ENOENT: a chain without Spillway's filter
  };
  return has_chain(Direction::kIn) || has_chain(Direction::kOut);
}

void remove_clsact(std::uint32_t ifindex) {
  const LoadLog log;
  bpf_tc_hook hook = hook_of(ifindex, Direction::kIn);
  hook.attach_point = static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS);
  (void)::bpf_tc_hook_destroy(&hook);
}

}  // namespace spillway::kernel
