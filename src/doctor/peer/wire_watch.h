// SPDX-License-Identifier: Apache-2.0
//
// Stale packets: those that a switch cut without correcting their lengths. The IP or UDP header
// promises more bytes than there are, so the kernel throws them away and no socket ever sees them.
//
// stale_payload() looks at the bytes of an IP packet as they came off the wire and believes none of
// them; fragments and IPv6 extension headers are not looked into. Pure; any thread.
//
// WireWatch sees stale packets to one port, on all interfaces, by a packet socket: needs
// CAP_NET_RAW. A filter in the kernel lets only such packets through, so that looking costs nothing
// while there are none. Non-blocking; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "net/system_call.h"

namespace spillway::doctor {

// The UDP payload, as far as it is there, of a packet to `port` whose lengths are stale; nothing
// for all other packets. `packet` begins with the IP header.
std::optional<base::ByteView> stale_payload(base::ByteView packet, std::uint16_t port);

struct StalePacket {
  base::ByteView payload;       // of UDP, as far as it is there
  std::size_t frame_bytes = 0;  // from the Ethernet header on
  std::string interface {};
};

class WireWatch {
 public:
  static base::Result<WireWatch> open(bool ipv6, std::uint16_t port);

  int fd() const { return fd_.get(); }
  // At most a few hundred of what waits, so that others get their turn.
  void drain(const std::function<void(const StalePacket&)>& handle);

 private:
  WireWatch(net::UniqueFd fd, std::uint16_t port);

  net::UniqueFd fd_;
  std::uint16_t port_;
  std::vector<std::uint8_t> buffer_;
};

}  // namespace spillway::doctor
