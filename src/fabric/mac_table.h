// SPDX-License-Identifier: Apache-2.0
//
// Which host a MAC address was last seen at, as a learning switch knows it. Holds kMacTableSize
// addresses; each has a few places where it may stand, and where they are taken the one learnt
// longest ago gives way: a flood of made-up addresses makes the fabric flood, not grow. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "scenario/topology.h"

namespace spillway::fabric {

inline constexpr std::size_t kMacTableSize = 4096;
inline constexpr std::size_t kMacBytes = 6;

// Broadcast is one of them.
inline bool is_multicast(base::ByteView address) {
  return (address[0] & 0x01) != 0;
}

class MacTable {
 public:
  MacTable() : entries_(kMacTableSize) {}

  // Addresses are kMacBytes long.
  void learn(base::ByteView address, scenario::HostId host);
  std::optional<scenario::HostId> find(base::ByteView address) const;

 private:
  static constexpr std::size_t kWays = 4;

  struct Entry {
    std::uint64_t address = kNobody;
    scenario::HostId host = 0;
    std::uint64_t learnt = 0;
  };
  static constexpr std::uint64_t kNobody = UINT64_MAX;

  std::vector<Entry> entries_;
  std::uint64_t clock_ = 0;
};

}  // namespace spillway::fabric
