// SPDX-License-Identifier: Apache-2.0
//
// A second or so of full-size data packets to a listener, to fill a queue on the way and see what
// the switch does then. Never faster than `rate`, and of the lowest priority. Blocks; one thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "base/units.h"
#include "net/address.h"

namespace spillway::doctor {

struct BurstOptions {
  net::SocketAddress peer;
  std::uint32_t tag = 0;
  std::size_t payload_limit = 0;  // bytes of UDP payload that fit the way
  base::BitRate rate;
  base::Duration length;
};

struct BurstSent {
  std::uint64_t packets = 0;
  std::size_t payload_bytes = 0;  // of each
};

base::Result<BurstSent> send_burst(const BurstOptions& options);

}  // namespace spillway::doctor
