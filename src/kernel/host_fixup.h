// SPDX-License-Identifier: Apache-2.0
//
// The fix-up of packets that a switch cut and whose length fields it left as they were
// (dataplane/fixup.h), at an interface of this host: an XDP program that stays until it is
// detached, pinned under the interface's name. Interfaces are those of the calling thread's network
// namespace; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/system_call.h"

namespace spillway::kernel {

struct FixupCounters {
  std::uint64_t passed = 0;  // needed none
  std::uint64_t fixed = 0;
  std::uint64_t refused = 0;  // cut, but longer than any trimmed packet
};

struct FixupAttached {
  bool in_driver = false;  // else in the kernel's general part: slower
};

base::Result<FixupAttached> attach_fixup(const std::string& interface);
base::Status detach_fixup(const std::string& interface);
base::Result<FixupCounters> fixup_counters(const std::string& interface);
// The program, loaded and attached nowhere: to measure it.
base::Result<net::UniqueFd> load_fixup();
// Interfaces that have it.
std::vector<std::string> fixed_up_interfaces();

}  // namespace spillway::kernel
