// SPDX-License-Identifier: Apache-2.0
//
// A port that is a UDP relay, for Spillway packets alone and without any privilege: one socket per
// host, where the other hosts send what is for it, and from where it leaves to the host. DSCP and
// ECN are read from each datagram and written to it. Threads as in port.h.
//
// Which host a datagram comes from, its relay directory knows: the one that is delivered to at the
// datagram's source address; else the only one with its IP address; else the one whose number is
// the rank that the packet names, for hosts that share an address. Fixed once made; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "fabric/port.h"
#include "fabric/port_attachments.h"
#include "net/udp_socket.h"
#include "scenario/topology.h"

namespace spillway::fabric {

class RelayDirectory {
 public:
  explicit RelayDirectory(std::span<const PortAttachment> ports);

  std::optional<scenario::HostId> source_of(const net::SocketAddress& from,
                                            base::ByteView payload) const;

 private:
  using Key = std::string;  // an address's bytes

  std::map<Key, scenario::HostId, std::less<>> by_address_;
  std::map<Key, std::optional<scenario::HostId>, std::less<>> by_ip_;  // nothing: several hosts'
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
