// SPDX-License-Identifier: Apache-2.0
//
// A port that is a UDP relay, for Spillway packets only and without privilege. Each host has one
// socket: other hosts send its packets there, and from there they go on to the host. DSCP and ECN
// are read from each datagram and written to it. Threads as in port.h.
//
// The relay directory finds the host that a datagram comes from. First choice is the host that
// receives at the datagram's source address, then the only host with its IP address. For hosts that
// share an address it is the host numbered like the packet's source rank. Immutable; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "net/udp_socket.h"
#include "sim/scenario/topology.h"
#include "switch/fabric/port.h"
#include "switch/fabric/port_attachments.h"

namespace spillway::fabric {

class RelayDirectory {
 public:
  explicit RelayDirectory(std::span<const PortAttachment> ports);

  std::optional<scenario::HostId> source_of(const net::SocketAddress& from,
                                            base::ByteView payload) const;

 private:
  using Key = std::string;  // an address's bytes

  std::map<Key, scenario::HostId, std::less<>> by_address_;
  std::map<Key, std::optional<scenario::HostId>, std::less<>> by_ip_;  // null: several hosts'
  std::uint32_t hosts_;
};

class RelayPort final : public Port {
 public:
  // The directory must outlive the port.
  static base::Result<std::unique_ptr<RelayPort>> open(const PortAttachment& attachment,
                                                       scenario::HostId host,
                                                       const RelayDirectory& directory);

  int fd() const override { return socket_.fd(); }
  void write(const Departure& departure) override;
  PortCounters counters() override;

 private:
  RelayPort(net::UdpSocket socket, const PortAttachment& attachment, scenario::HostId host,
            const RelayDirectory& directory);

  void take(const Received& received, Intake& intake) override;

  net::UdpSocket socket_;
  scenario::HostId host_;
  const RelayDirectory& directory_;
};

}  // namespace spillway::fabric
