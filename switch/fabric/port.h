// SPDX-License-Identifier: Apache-2.0
//
// Attaches one host of the emulated network to the outside. Frames that the network delivers to the
// host are written here. A network interface (packet_port.h) reads what the host sends; a UDP relay
// (relay_port.h) reads what others send to it.
//
// Reading never blocks. A read takes at most kFramesPerRead frames, so that a busy port does not
// starve the others; the rest waits in the kernel. Writing waits for the writer if all of the
// port's batches are in flight (outlet.h). One thread calls; a writer thread, if any, sends.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/units.h"
#include "switch/fabric/intake.h"
#include "switch/fabric/outlet.h"
#include "switch/fabric/socket_batches.h"

namespace spillway::fabric {

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
  void read(Intake& intake);
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
  Outlet out_;

 private:
  virtual void take(const Received& received, Intake& intake) = 0;
};

}  // namespace spillway::fabric
