// SPDX-License-Identifier: Apache-2.0
//
// Attaches the hosts of the emulated network to the outside: where each is attached
// (PortAttachment), and the port that carries its frames. Frames that the network delivers to the
// host are written here. A network interface (PacketPort) reads what the host sends; a UDP relay
// (RelayPort) reads what others send to it.
//
// Reading never blocks. A read takes at most kFramesPerRead frames, so that a busy port does not
// starve the others; the rest waits in the kernel. Writing waits for the writer if all of the
// port's batches are in flight (transmit_queue.h). One thread calls; a writer thread, if any,
// sends.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "net/address.h"
#include "net/sockets.h"
#include "net/system_call.h"
#include "sim/host.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/topology.h"
#include "switch/fabric/ingress.h"
#include "switch/fabric/transmit_queue.h"

namespace spillway::fabric {

// ------------------------------------------------------------------ attachments
//
// Every host of the topology has exactly one `port` line in the scenario; errors name the line.

// A network interface of the calling thread's network namespace or, if `interface` is empty, a UDP
// relay for Spillway packets only.
struct PortAttachment {
  std::string interface;
  net::SocketAddress listen;   // relay: other hosts send packets for this host here
  net::SocketAddress deliver;  // relay: the host receives them here
};

// One per host, in the topology's order.
base::Result<std::vector<PortAttachment>> port_attachments(const scenario::Scenario& scenario,
                                                           const scenario::Topology& topology);

inline constexpr std::size_t kFramesPerRead = 256;
inline constexpr int kSocketBufferBytes = 8 << 20;

// A frame to send.
struct Departure {
  base::ByteView bytes;  // the frame, or a relay's UDP payload
  std::uint8_t dscp = 0;
  std::uint8_t ecn = 0;
  bool is_cut = false;  // trimmed in the network
  base::Instant due;    // by the monotonic clock
};

struct PortCounters {
  SendCounters out;
  std::uint64_t missed = 0;     // lost before they were read
  std::uint64_t oversized = 0;  // longer than the interface's frames: segmentation left to a card
};

class Port {
 public:
  virtual ~Port() = default;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  virtual int fd() const = 0;
  void read(Ingress& ingress);
  // The frame leaves with the next flush() at the latest.
  virtual void write(const Departure& departure) = 0;
  // Hands the frames to the writer, if there is one.
  void flush() { out_.flush(fd()); }
  void wait_until_written() { out_.wait_until_written(); }
  // Call before the first write(). The writer must outlive the last one.
  void use(Writer& writer) { out_.use(writer); }
  // Queries the kernel if necessary.
  virtual PortCounters counters() = 0;

 protected:
  // Sizes of the longest messages; `to` is the destination of UDP messages.
  Port(std::size_t read_bytes, std::size_t write_bytes, std::optional<net::SocketAddress> to = {})
      : in_(read_bytes), out_(write_bytes, std::move(to)) {}

  ReceiveBatch in_;
  TransmitQueue out_;

 private:
  virtual void take(const Received& received, Ingress& ingress) = 0;
};

// A port that is a network interface of the calling thread's namespace. A packet socket receives
// every frame, whatever its destination. Needs CAP_NET_RAW there.
//
// Completes checksums that the sender left to a card, and puts back VLAN tags that the kernel took
// out. Frames longer than the interface's (segmentation left to a card: TSO, GSO, GRO) are dropped
// and counted, because no switch carries them. Threads as in port.h.

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

  void take(const Received& received, Ingress& ingress) override;

  net::UniqueFd fd_;
  scenario::HostId host_;
  std::uint8_t lengths_;
  std::uint64_t missed_ = 0;
  std::uint64_t oversized_ = 0;
};

// A port that is a UDP relay, for Spillway packets only and without privilege. Each host has one
// socket: other hosts send its packets there, and from there they go on to the host. DSCP and ECN
// are read from each datagram and written to it. Threads as in port.h.
//
// The relay directory finds the host that a datagram comes from. First choice is the host that
// receives at the datagram's source address, then the only host with its IP address. For hosts that
// share an address it is the host numbered like the packet's source rank. Immutable; any thread.

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

  void take(const Received& received, Ingress& ingress) override;

  net::UdpSocket socket_;
  scenario::HostId host_;
  const RelayDirectory& directory_;
};

// A real host as the emulated network sees it. A frame that its port read waits here until the
// host's emulated link is free; what the network delivers goes to the port. It stands for the
// host's card: a frame that would not fit into kIngressBytes is dropped and counted.
//
// Frames leave in the order of push(), and never before they arrived. One thread.

inline constexpr std::uint64_t kIngressBytes = 4 << 20;

class PortStack final : public sim::HostStack {
 public:
  // `zero`: start of the network's time, by the monotonic clock. All arguments must outlive the
  // stack.
  PortStack(sim::PacketPool& pool, Port& port, const base::Instant& zero)
      : pool_(pool), port_(port), zero_(zero) {}

  // `at` is by the network's clock and not before its current time. Takes ownership of the packet.
  void push(sim::PacketIndex index, base::Instant at);
  std::uint64_t dropped() const { return dropped_; }

  void expect_flow(const scenario::Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const scenario::Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_packet(sim::Packet& packet, base::Instant now) override;
  void on_timeout(base::Instant now) override { seen_ = now; }
  base::Instant next_timeout() const override;
  bool poll_transmit(base::Instant now, sim::Packet& packet) override;

 private:
  struct Waiting {
    base::Instant at;
    sim::PacketIndex packet = sim::kNone;
  };

  sim::PacketPool& pool_;
  Port& port_;
  const base::Instant& zero_;
  std::deque<Waiting> waiting_;
  std::uint64_t waiting_bytes_ = 0;
  std::uint64_t dropped_ = 0;
  base::Instant seen_{base::nanoseconds(-1)};
};

}  // namespace spillway::fabric
