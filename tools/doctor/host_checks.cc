// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/host_checks.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/clock.h"
#include "base/environment.h"
#include "gpu/device_coder.h"
#include "gpu/driver.h"
#include "gpu/kernel_compiler.h"
#include "net/system_call.h"

namespace spillway::doctor {

namespace {

// PATH, and the folders where distributions keep tools for root.
std::string tool_folders() {
  const char* path = std::getenv("PATH");
  return std::string(path != nullptr ? path : "") + ":/usr/sbin:/sbin:/usr/bin:/bin";
}

Findings check_software(const HostFiles& files, CapabilitySet capabilities) {
  Findings findings = {check_kernel(files)};
  append(findings, check_capabilities(capabilities));
  append(findings, {check_user_namespaces(files), check_bpffs(files), check_btf(files),
                    check_iproute2(tool_folders())});
  return findings;
}

Findings check_sockets(const HostFiles& files, CapabilitySet capabilities) {
  Findings findings =
      check_socket_limits(files, wanted_socket_buffer(), has_net_admin(capabilities));
  append(findings, check_offloads(net::available_offloads({})));
  const LoopbackTrial ipv4 = try_loopback(false);
  append(findings, {check_loopback_marks(ipv4, false),
                    check_loopback_marks(try_loopback(true), true), check_receive_stamps(ipv4)});
  return findings;
}

}  // namespace

Findings check_this_host() {
  const HostFiles files;
  const CapabilitySet capabilities = effective_capabilities(files);
  Findings findings = check_software(files, capabilities);
  append(findings, check_interfaces(up_interfaces()));
  append(findings, check_sockets(files, capabilities));
  append(findings, {check_clock_source(files), check_clock(measure_clock())});
  append(findings, check_gpus(inspect_gpus(base::Environment::of_process())));
  return findings;
}

namespace {

constexpr std::size_t kMaxBytes = 64 * 1024;

}  // namespace

std::optional<std::string> HostFiles::read(std::string_view path) const {
  std::ifstream file(root_ / path);
  if (!file) {
    return std::nullopt;
  }
  std::string text(kMaxBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) {
    return std::nullopt;
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return text;
}

std::optional<unsigned long long> HostFiles::read_number(std::string_view path) const {
  const std::optional<std::string> text = read(path);
  unsigned long long number = 0;
  if (!text ||
      std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc()) {
    return std::nullopt;
  }
  return number;
}

bool HostFiles::exists(std::string_view path) const {
  std::error_code ignored;
  return std::filesystem::exists(root_ / path, ignored);
}

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

namespace {

// Added in Linux 5.8; older headers lack it.
constexpr unsigned kCapBpf = 39;

bool has(CapabilitySet set, unsigned capability) {
  return (set >> capability & 1U) != 0;
}

Finding capability_finding(bool has_it, std::string_view name, std::string_view buys) {
  const std::string check = fmt::format("cap-{}", name);
  if (has_it) {
    return {check, Severity::kOk, fmt::format("there: {}", buys)};
  }
  return {check, Severity::kNote, fmt::format("missing: {}", buys),
          fmt::format("run as root, or setcap cap_{}+ep on the binary", name)};
}

Finding refused(std::string_view setting, unsigned value) {
  return {"user-namespaces", Severity::kNote,
          fmt::format("{} forbids them: a lab without root runs on loopback only", setting),
          fmt::format("sysctl -w {}={}, or run labs as root", setting, value)};
}

}  // namespace

std::optional<CapabilitySet> parse_effective_capabilities(std::string_view status) {
  constexpr std::string_view kLabel = "CapEff:";
  const std::size_t at = status.find(kLabel);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  std::string_view rest = status.substr(at + kLabel.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  CapabilitySet set = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), set, 16).ec != std::errc()) {
    return std::nullopt;
  }
  return set;
}

CapabilitySet effective_capabilities(const HostFiles& files) {
  return parse_effective_capabilities(files.read("proc/self/status").value_or("")).value_or(0);
}

bool has_net_admin(CapabilitySet set) {
  return has(set, CAP_NET_ADMIN);
}

bool has_net_raw(CapabilitySet set) {
  return has(set, CAP_NET_RAW);
}

bool has_bpf(CapabilitySet set) {
  return has(set, kCapBpf) || has(set, CAP_SYS_ADMIN);
}

Findings check_capabilities(CapabilitySet set) {
  return {
      capability_finding(has_net_admin(set), "net_admin",
                         "socket queues beyond the system's limits, eBPF on interfaces"),
      capability_finding(has_net_raw(set), "net_raw",
                         "a switch on interfaces, a look at frames that the kernel throws away"),
      capability_finding(has_bpf(set), "bpf", "eBPF programs: the switch and the fix-up"),
  };
}

Finding check_user_namespaces(const HostFiles& files) {
  if (files.read_number("proc/sys/user/max_user_namespaces") == 0ULL) {
    return refused("user.max_user_namespaces", 10000);
  }
  if (files.read_number("proc/sys/kernel/unprivileged_userns_clone") == 0ULL) {
    return refused("kernel.unprivileged_userns_clone", 1);
  }
  if (files.read_number("proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1ULL) {
    return refused("kernel.apparmor_restrict_unprivileged_userns", 0);
  }
  return {"user-namespaces", Severity::kOk, "allowed: labs need no root"};
}

namespace {

constexpr const char* kGpuCheck = "gpu";

std::string text_of(const gpu::DeviceInfo& device) {
  return fmt::format("{}: {}, compute capability {}.{}, {} GiB", device.ordinal, device.name,
                     device.major, device.minor, device.memory_bytes >> 30);
}

Finding finding_of(const gpu::DeviceInfo& device, const base::Status& compiler) {
  if (!compiler.ok()) {
    return {
        kGpuCheck, Severity::kWarning,
        fmt::format("{}: gradients are coded by the CPU: {}", text_of(device), compiler.message()),
        "install NVRTC for this GPU (pip install nvidia-cuda-nvrtc), or set SPILLWAY_NVRTC"};
  }
  const unsigned needed =
      gpu::launches_of(codec::RowLayout(codec::kMaxRowLength, codec::kMaxRowLog2), 0, 1)
          .front()
          .shared_bytes;
  if (device.shared_bytes < needed) {
    return {kGpuCheck, Severity::kNote,
            fmt::format("{}: codes gradients in rows of up to 2^13 or 2^14", text_of(device)),
            "leave rows at their default length"};
  }
  return {kGpuCheck, Severity::kOk, fmt::format("{}: codes gradients", text_of(device))};
}

}  // namespace

GpuState inspect_gpus(const base::Environment& environment) {
  GpuState state;
  state.cache_folder = gpu::cache_folder(environment);
  const base::Result<const gpu::Driver*> driver = gpu::Driver::find();
  state.driver = driver.status();
  if (!driver.ok()) {
    return state;
  }
  for (int i = 0; i < std::min((*driver)->device_count(), gpu::kMaxDevices); ++i) {
    const base::Result<gpu::DeviceInfo> device = gpu::describe_device(i);
    if (!device.ok()) {
      state.driver = device.status();
      return state;
    }
    state.devices.push_back(*device);
    state.compilers.push_back(
        gpu::compile_kernels(device->major, device->minor, environment).status());
  }
  return state;
}

Findings check_gpus(const GpuState& state) {
  if (state.devices.empty()) {
    return {{kGpuCheck, Severity::kOk,
             state.driver.ok() ? "none: gradients are coded by the CPU" : state.driver.message()}};
  }
  Findings findings;
  for (std::size_t i = 0; i < state.devices.size(); ++i) {
    findings.push_back(finding_of(state.devices[i], state.compilers[i]));
  }
  if (state.cache_folder.empty()) {
    findings.push_back({kGpuCheck, Severity::kNote,
                        "kernels are compiled in every process: there is no folder to keep them",
                        "set HOME, XDG_CACHE_HOME or SPILLWAY_CACHE_DIR"});
  }
  return findings;
}

}  // namespace spillway::doctor
