// SPDX-License-Identifier: Apache-2.0
//
// The fix-up of trimmed packets with stale length fields (dataplane/fixup.h), at an interface of
// this host. It is an XDP program that stays until it is detached, pinned under the interface's
// name. Interfaces are those of the calling thread's network namespace. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/system_call.h"

namespace spillway::kernel {

struct FixupCounters {
  std::uint64_t passed = 0;  // needed no fix-up
  std::uint64_t fixed = 0;
  std::uint64_t refused = 0;  // stale lengths, but longer than any trimmed packet
};

struct FixupAttached {
  bool in_driver = false;  // else generic XDP: slower
};

base::Result<FixupAttached> attach_fixup(const std::string& interface);
base::Status detach_fixup(const std::string& interface);
base::Result<FixupCounters> fixup_counters(const std::string& interface);
// The loaded program, not attached, for measurements.
base::Result<net::UniqueFd> load_fixup();
// Interfaces with an attached fix-up.
std::vector<std::string> fixed_up_interfaces();

}  // namespace spillway::kernel
