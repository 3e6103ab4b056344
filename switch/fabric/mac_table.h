// SPDX-License-Identifier: Apache-2.0
//
// Which host a station (a MAC address in a VLAN, dataplane/station.h) was last seen at, as in a
// learning switch. Holds kMacTableSize stations. Each may use only a few entries and replaces the
// oldest of them: a flood of forged addresses makes the fabric flood frames, not grow. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/scenario/topology.h"
#include "switch/dataplane/station.h"

namespace spillway::fabric {

inline constexpr std::size_t kMacTableSize = 4096;
inline constexpr std::size_t kMacBytes = SPILLWAY_ADDRESS_BYTES;

class MacTable {
 public:
  MacTable() : entries_(kMacTableSize) {}

  void learn(const spillway_station& station, scenario::HostId host);
  std::optional<scenario::HostId> find(const spillway_station& station) const;

 private:
  static constexpr std::size_t kWays = 4;

  struct Entry {
    std::uint64_t station = kNobody;
    scenario::HostId host = 0;
    std::uint64_t learnt = 0;
  };
  static constexpr std::uint64_t kNobody = UINT64_MAX;

  std::vector<Entry> entries_;
  std::uint64_t clock_ = 0;
};

}  // namespace spillway::fabric
