// SPDX-License-Identifier: Apache-2.0
#include "doctor/bpf_support.h"

#include <fmt/format.h>

#include <optional>
#include <sstream>

namespace spillway::doctor {
namespace {

// Where the first file system of type bpf is mounted, by the lines of /proc/mounts.
std::optional<std::string> bpffs_in(const std::string& mounts) {
  std::istringstream lines(mounts);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string device;
    std::string folder;
    std::string type;
    if (words >> device >> folder >> type && type == "bpf") {
      return folder;
    }
  }
  return std::nullopt;
}

}  // namespace

Finding check_bpffs(const HostFiles& files) {
  const std::optional<std::string> folder = bpffs_in(files.read("proc/mounts").value_or(""));
  if (!folder) {
    return {"bpffs", Severity::kNote, "not mounted: eBPF programs cannot be kept",
            "mount -t bpf bpf /sys/fs/bpf"};
  }
  return {"bpffs", Severity::kOk, fmt::format("mounted at {}", *folder)};
}

Finding check_btf(const HostFiles& files) {
  if (!files.exists("sys/kernel/btf/vmlinux")) {
    return {"btf", Severity::kNote, "the kernel tells nothing about its types",
            "use a kernel with CONFIG_DEBUG_INFO_BTF where the eBPF switch shall run"};
  }
  return {"btf", Severity::kOk, "the kernel tells its types"};
}

}  // namespace spillway::doctor
