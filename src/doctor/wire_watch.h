// SPDX-License-Identifier: Apache-2.0
//
// Sees stale packets (stale_packet.h) to one port, on all interfaces, by a packet socket: needs
// CAP_NET_RAW. A filter in the kernel lets only such packets through, so that looking costs nothing
// while there are none. Non-blocking; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "net/unique_fd.h"

namespace spillway::doctor {

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
