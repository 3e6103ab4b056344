// SPDX-License-Identifier: Apache-2.0
//
// Where one host of the emulated network is attached to the outside: frames are read here as if
// that host had sent them, and written here when the network delivers them to it. packet_port.h is
// a network interface, relay_port.h a UDP relay.
//
// Reading never blocks. A read takes at most kFramesPerRead, so that one busy port does not starve
// the others; what is left waits in the kernel. Writing waits for the writer where all of the
// port's batches are on their way (outlet.h). One thread calls; a writer's, if any, sends.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/units.h"
#include "fabric/intake.h"
#include "fabric/outlet.h"
#include "fabric/socket_batches.h"

namespace spillway::fabric {

inline constexpr std::size_t kFramesPerRead = 256;
inline constexpr int kSocketBufferBytes = 8 << 20;

// A frame that leaves.
struct Departure {
  base::ByteView bytes;  // the frame, or a relay's UDP payload
  std::uint8_t dscp = 0;
  std::uint8_t ecn = 0;
  bool is_cut = false;  // it was longer when it was sent
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
  // Leaves with the next flush() at the latest.
  virtual void write(const Departure& departure) = 0;
  // Handed to the writer where there is one.
  void flush() { out_.flush(fd()); }
  void wait_until_written() { out_.wait_until_written(); }
  // Before the first write(). Must outlive the last one.
  void use(Writer& writer) { out_.use(writer); }
  // Asks the kernel where it has to.
  virtual PortCounters counters() = 0;

 protected:
  // The sizes of the longest messages; UDP says where everything goes to.
  Port(std::size_t read_bytes, std::size_t write_bytes, std::optional<net::SocketAddress> to = {})
      : in_(read_bytes), out_(write_bytes, std::move(to)) {}

  ReceiveBatch in_;
  Outlet out_;

 private:
  virtual void take(const Received& received, Intake& intake) = 0;
};

}  // namespace spillway::fabric
