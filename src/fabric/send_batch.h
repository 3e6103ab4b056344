// SPDX-License-Identifier: Apache-2.0
//
// Messages on their way to a socket, gathered and sent many at a call (sendmmsg). What the kernel
// has no room for is dropped and counted, as a full card would: the fabric waits for nobody. Keeps
// the time at which each was due, and how late they left. One thread.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "net/address.h"

namespace spillway::fabric {

struct SendCounters {
  std::uint64_t sent = 0;
  std::uint64_t refused = 0;
  base::Duration latest;      // of all
  base::Duration late_sum{};  // of all that were sent
};

class SendBatch {
 public:
  static constexpr std::size_t kMessages = 64;

  // For a bound packet socket, or a UDP socket with the address that everything goes to.
  explicit SendBatch(std::size_t message_bytes, std::optional<net::SocketAddress> to = {});
  SendBatch(const SendBatch&) = delete;
  SendBatch& operator=(const SendBatch&) = delete;

  // Room for a message of so many bytes, at most message_bytes; sends what is gathered if it is
  // full. `tos` matters for UDP; `due` by the monotonic clock.
  base::MutableByteView add(int fd, std::size_t bytes, std::uint8_t tos, base::Instant due);
  void flush(int fd);
  std::size_t message_bytes() const { return message_bytes_; }
  const SendCounters& counters() const { return counters_; }

 private:
  static constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(int));

  void write_class(std::size_t index, std::uint8_t tos);
  void note_lateness(std::size_t count);

  std::size_t message_bytes_;
  std::optional<net::SocketAddress> to_;
  std::vector<std::uint8_t> buffers_;
  std::vector<std::uint64_t> controls_;  // aligned for cmsghdr
  std::vector<iovec> data_;
  std::vector<mmsghdr> headers_;
  std::vector<base::Instant> due_;
  std::size_t gathered_ = 0;
  SendCounters counters_;
};

}  // namespace spillway::fabric
