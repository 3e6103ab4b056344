// SPDX-License-Identifier: Apache-2.0
//
// The kernel's release, for what depends on its age.
#pragma once

#include <compare>
#include <optional>
#include <string_view>

namespace spillway::net {

struct KernelRelease {
  unsigned major = 0;
  unsigned minor = 0;

  friend auto operator<=>(const KernelRelease&, const KernelRelease&) = default;
};

// Of "6.1.0-18-amd64", "5.15", "6.6-rc1+"; nothing where it does not begin with two numbers.
std::optional<KernelRelease> parse_kernel_release(std::string_view text);

// Of the kernel that runs.
std::optional<KernelRelease> kernel_release();

}  // namespace spillway::net
