// SPDX-License-Identifier: Apache-2.0
//
// Stale packets: packets that a switch cut without correcting their lengths. The IP or UDP header
// promises more bytes than there are, so the kernel drops them and no socket ever sees them.
//
// stale_payload() parses the raw bytes of an IP packet and trusts none of them. It does not look
// into fragments or IPv6 extension headers. Pure; any thread.
//
// WireWatch sees stale packets to one port on all interfaces through a packet socket, which needs
// CAP_NET_RAW. A kernel filter passes only such packets, so watching costs nothing while there are
// none. Non-blocking; one thread.
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

// Returns the remaining UDP payload of a packet to `port` whose lengths are stale, nothing for all
// other packets. `packet` begins with the IP header.
std::optional<base::ByteView> stale_payload(base::ByteView packet, std::uint16_t port);

struct StalePacket {
  base::ByteView payload;       // the remaining part of the UDP payload
  std::size_t frame_bytes = 0;  // from the Ethernet header on
  std::string interface {};
};

class WireWatch {
 public:
  static base::Result<WireWatch> open(bool ipv6, std::uint16_t port);

  int fd() const { return fd_.get(); }
  // Handles at most a few hundred waiting frames, so that other sockets get their turn.
  void drain(const std::function<void(const StalePacket&)>& handle);

 private:
  WireWatch(net::UniqueFd fd, std::uint16_t port);

  net::UniqueFd fd_;
  std::uint16_t port_;
  std::vector<std::uint8_t> buffer_;
};

}  // namespace spillway::doctor
