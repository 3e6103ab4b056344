// SPDX-License-Identifier: Apache-2.0
#include "doctor/kernel_age.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "net/kernel_release.h"

namespace spillway::doctor {
namespace {

constexpr const char* kCheck = "kernel";
constexpr net::KernelRelease kHasGso{4, 18};
constexpr net::KernelRelease kHasGro{5, 0};
constexpr net::KernelRelease kHasSwitch{5, 15};

Finding finding_of(const net::KernelRelease& release, const std::string& text) {
  if (release < kHasGso) {
    return {kCheck, Severity::kWarning,
            fmt::format("{}: UDP GSO, GRO and the eBPF switch are missing", text),
            "install Linux 5.15 or newer"};
  }
  if (release < kHasGro) {
    return {kCheck, Severity::kWarning,
            fmt::format("{}: UDP GRO and the eBPF switch are missing", text),
            "install Linux 5.15 or newer"};
  }
  if (release < kHasSwitch) {
    return {kCheck, Severity::kNote,
            fmt::format("{}: new enough for hosts, not for the eBPF switch", text),
            "install Linux 5.15 or newer where the eBPF switch shall run"};
  }
  return {kCheck, Severity::kOk,
          fmt::format("{}: new enough for UDP GSO, GRO and the eBPF switch", text)};
}

}  // namespace

Finding check_kernel(const HostFiles& files) {
  const std::string text = files.read("proc/sys/kernel/osrelease").value_or("");
  const std::optional<net::KernelRelease> release = net::parse_kernel_release(text);
  if (!release) {
    return {kCheck, Severity::kNote, fmt::format("its release, '{}', cannot be read", text),
            "check that it is Linux 5.15 or newer"};
  }
  return finding_of(*release, text);
}

}  // namespace spillway::doctor
