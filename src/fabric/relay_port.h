// SPDX-License-Identifier: Apache-2.0
//
// A port that is a UDP relay, for Spillway packets alone and without any privilege: one socket per
// host, where the other hosts send what is for it, and from where it leaves to the host. DSCP and
// ECN are read from each datagram and written to it. One thread.
#pragma once

#include <memory>

#include "base/status.h"
#include "fabric/port.h"
#include "fabric/relay_directory.h"
#include "net/udp_socket.h"

namespace spillway::fabric {

class RelayPort final : public Port {
 public:
  // The directory must outlive the port.
  static base::Result<std::unique_ptr<RelayPort>> open(const PortSpec& spec, sim::HostId host,
                                                       const RelayDirectory& directory);

  int fd() const override { return socket_.fd(); }
  void write(const Departure& departure) override;
  PortCounters counters() override;

 private:
  RelayPort(net::UdpSocket socket, const PortSpec& spec, sim::HostId host,
            const RelayDirectory& directory);

  void take(const Received& received, Intake& intake) override;

  net::UdpSocket socket_;
  sim::HostId host_;
  const RelayDirectory& directory_;
};

}  // namespace spillway::fabric
