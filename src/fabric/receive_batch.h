// SPDX-License-Identifier: Apache-2.0
//
// Messages off a socket, many at a call (recvmmsg), with what the kernel says beside each: when it
// arrived, and, where the socket asked for it, DSCP and ECN, a packet socket's remarks and how many
// messages were lost. Buffers are the batch's and hold one call's messages. One thread.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "net/arrival_notes.h"

namespace spillway::fabric {

struct Received {
  base::MutableByteView bytes;
  bool is_cut = false;       // it was longer than a buffer
  net::ArrivalNotes notes;   // DSCP and ECN of UDP; the time by the monotonic clock
  bool no_checksum = false;  // packet sockets: its TCP or UDP checksum was left to the card
  std::optional<std::uint32_t> vlan;  // packet sockets: type << 16 | tag, which was taken out
  const sockaddr_storage* from = nullptr;
};

class ReceiveBatch {
 public:
  static constexpr std::size_t kMessages = 64;
  // Bytes that may be put in front of a message in its buffer.
  static constexpr std::size_t kHeadroom = 4;

  explicit ReceiveBatch(std::size_t message_bytes);
  ReceiveBatch(const ReceiveBatch&) = delete;
  ReceiveBatch& operator=(const ReceiveBatch&) = delete;

  // What waits at the socket, without waiting for more: how many messages that is.
  std::size_t receive(int fd);
  // One of them; `now` by base::MonotonicClock, read after receive().
  Received message(std::size_t index, base::Instant now);
  // Messages that the kernel threw away, of UDP sockets that asked for it.
  std::uint64_t overflowed() const { return reader_.overflowed(); }

 private:
  static constexpr std::size_t kControlBytes = 256;

  void read_control(msghdr& header, base::Instant now, Received& received);

  std::vector<std::uint8_t> buffers_;
  std::vector<std::uint64_t> controls_;  // aligned for cmsghdr
  std::vector<sockaddr_storage> senders_;
  std::vector<iovec> data_;
  std::vector<mmsghdr> headers_;
  net::ArrivalReader reader_;
};

}  // namespace spillway::fabric
