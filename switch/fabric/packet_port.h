// SPDX-License-Identifier: Apache-2.0
//
// A port that is a network interface of the calling thread's namespace. A packet socket receives
// every frame, whatever its destination. Needs CAP_NET_RAW there.
//
// Completes checksums that the sender left to a card, and puts back VLAN tags that the kernel took
// out. Frames longer than the interface's (segmentation left to a card: TSO, GSO, GRO) are dropped
// and counted, because no switch carries them. Threads as in port.h.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "net/system_call.h"
#include "switch/fabric/port.h"

namespace spillway::fabric {

class PacketPort final : public Port {
 public:
  // `lengths`: enum spillway_lengths, for trimmed frames.
  static base::Result<std::unique_ptr<PacketPort>> open(const std::string& interface,
                                                        scenario::HostId host,
                                                        std::uint8_t lengths);

  int fd() const override { return fd_.get(); }
  void write(const Departure& departure) override;
  PortCounters counters() override;

 private:
  PacketPort(net::UniqueFd fd, std::size_t frame_bytes, scenario::HostId host,
             std::uint8_t lengths);

  void take(const Received& received, Intake& intake) override;

  net::UniqueFd fd_;
  scenario::HostId host_;
  std::uint8_t lengths_;
  std::uint64_t missed_ = 0;
  std::uint64_t oversized_ = 0;
};

}  // namespace spillway::fabric
