// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/host/system.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "net/system_call.h"

namespace spillway::doctor {
namespace {

constexpr const char* kKernelCheck = "kernel";
constexpr net::KernelRelease kHasGso{4, 18};
constexpr net::KernelRelease kHasGro{5, 0};
constexpr net::KernelRelease kHasSwitch{5, 15};

Finding kernel_finding(const net::KernelRelease& release, const std::string& text) {
  if (release < kHasGso) {
    return {kKernelCheck, Severity::kWarning,
            fmt::format("{}: UDP GSO, GRO and the eBPF switch are missing", text),
            "install Linux 5.15 or newer"};
  }
  if (release < kHasGro) {
    return {kKernelCheck, Severity::kWarning,
            fmt::format("{}: UDP GRO and the eBPF switch are missing", text),
            "install Linux 5.15 or newer"};
  }
  if (release < kHasSwitch) {
    return {kKernelCheck, Severity::kNote,
            fmt::format("{}: new enough for hosts, not for the eBPF switch", text),
            "install Linux 5.15 or newer where the eBPF switch shall run"};
  }
  return {kKernelCheck, Severity::kOk,
          fmt::format("{}: new enough for UDP GSO, GRO and the eBPF switch", text)};
}

}  // namespace

Finding check_kernel(const HostFiles& files) {
  const std::string text = files.read("proc/sys/kernel/osrelease").value_or("");
  const std::optional<net::KernelRelease> release = net::parse_kernel_release(text);
  if (!release) {
    return {kKernelCheck, Severity::kNote, fmt::format("its release, '{}', cannot be read", text),
            "check that it is Linux 5.15 or newer"};
  }
  return kernel_finding(*release, text);
}

namespace {

constexpr std::array<std::string_view, 5> kFast = {"tsc", "arch_sys_counter", "kvm-clock",
                                                   "hyperv_clocksource_tsc_page", "timebase"};
constexpr std::array<std::string_view, 5> kSlow = {"hpet", "acpi_pm", "xen", "jiffies", "pit"};
constexpr base::Duration kCoarse = base::microseconds(1);

bool contains(const std::array<std::string_view, 5>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Finding check_clock_source(const HostFiles& files) {
  const std::string name =
      files.read("sys/devices/system/clocksource/clocksource0/current_clocksource").value_or("");
  if (contains(kFast, name)) {
    return {"clocksource", Severity::kOk, fmt::format("{}: read without a system call", name)};
  }
  if (contains(kSlow, name)) {
    return {"clocksource", Severity::kWarning,
            fmt::format("{}: every look at the clock is slow", name),
            "boot with clocksource=tsc (tsc=reliable on some machines), if the processor has it"};
  }
  return {"clocksource", Severity::kNote, fmt::format("'{}' is not one that is known here", name),
          "see that what clock-read says is below a microsecond"};
}

ClockQuality measure_clock() {
  timespec resolution{};
  ::clock_getres(CLOCK_MONOTONIC, &resolution);
  const base::MonotonicClock clock;
  constexpr std::int64_t kLooks = 10'000;
  const base::Instant begin = clock.now();
  base::Instant last = begin;
  for (std::int64_t i = 0; i < kLooks; ++i) {
    last = clock.now();
  }
  return {.resolution = net::duration_of(resolution), .read_cost = (last - begin) / kLooks};
}

Finding check_clock(const ClockQuality& quality) {
  const std::string figures = fmt::format("resolution {} ns, a look takes {} ns",
                                          quality.resolution.count(), quality.read_cost.count());
  if (quality.resolution > kCoarse) {
    return {"clock-read", Severity::kWarning, fmt::format("too coarse to pace by: {}", figures),
            "use a kernel with CONFIG_HIGH_RES_TIMERS"};
  }
  return {"clock-read", Severity::kOk, figures};
}

namespace {

// Returns the first mount point of a bpf file system in the lines of /proc/mounts.
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

namespace {

bool is_found(std::string_view tool, std::string_view path) {
  while (!path.empty()) {
    const std::size_t colon = std::min(path.find(':'), path.size());
    const std::string candidate = fmt::format("{}/{}", path.substr(0, colon), tool);
    if (colon > 0 && ::access(candidate.c_str(), X_OK) == 0) {
      return true;
    }
    path.remove_prefix(std::min(colon + 1, path.size()));
  }
  return false;
}

}  // namespace

Finding check_iproute2(std::string_view path) {
  for (const std::string_view tool : {"ip", "tc"}) {
    if (!is_found(tool, path)) {
      return {"iproute2", Severity::kNote,
              fmt::format("'{}' was not found: labs run on loopback only", tool),
              "apt-get install iproute2"};
    }
  }
  return {"iproute2", Severity::kOk, "ip and tc are there"};
}

}  // namespace spillway::doctor
