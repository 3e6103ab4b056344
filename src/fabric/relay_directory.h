// SPDX-License-Identifier: Apache-2.0
//
// Which host a relayed datagram comes from: the one that is delivered to at the datagram's source
// address; else the only one with its IP address; else the one whose number is the rank that the
// packet names, for hosts that share an address. Fixed once made; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "fabric/emulator.h"
#include "sim/packet.h"

namespace spillway::fabric {

class RelayDirectory {
 public:
  explicit RelayDirectory(std::span<const PortSpec> ports);

  std::optional<sim::HostId> source_of(const net::SocketAddress& from,
                                       base::ByteView payload) const;

 private:
  using Key = std::string;  // an address's bytes

  std::map<Key, sim::HostId, std::less<>> by_address_;
  std::map<Key, std::optional<sim::HostId>, std::less<>> by_ip_;  // nothing: several hosts'
  std::uint32_t hosts_;
};

}  // namespace spillway::fabric
