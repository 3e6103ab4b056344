// SPDX-License-Identifier: Apache-2.0
//
// In which order the packets of a message are sent: striding through it, so that packets lost
// together, or cut off by a STOP, are not neighbours. A row loses a packet here and there, never a
// run of them; and packets of every importance are on the wire at any time, so that a switch under
// pressure has unimportant ones to drop.
#pragma once

#include <cstdint>
#include <numeric>

namespace spillway::transport {

class SendOrder {
 public:
  SendOrder() = default;
  // Near packets times the golden ratio, which keeps any run of positions far apart; coprime with
  // packets, so that every packet has its turn.
  explicit SendOrder(std::uint32_t packets)
      : packets_(packets),
        stride_(static_cast<std::uint32_t>(std::uint64_t{packets} * 618 / 1000)) {
    while (std::gcd(stride_, packets_) != 1) {
      ++stride_;
    }
  }

  std::uint32_t packet_at(std::uint32_t position) const {
    return static_cast<std::uint32_t>(std::uint64_t{position} * stride_ % packets_);
  }

 private:
  std::uint32_t packets_ = 1;
  std::uint32_t stride_ = 0;
};

}  // namespace spillway::transport
