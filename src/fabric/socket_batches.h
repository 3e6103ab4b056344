// SPDX-License-Identifier: Apache-2.0
//
// Messages to and from a socket, many at a call.
//
// ReceiveBatch (recvmmsg) says beside each message what the kernel does: when it arrived, and,
// where the socket asked for it, DSCP and ECN, a packet socket's remarks and how many messages were
// lost. Its buffers hold one call's messages.
//
// SendBatch (sendmmsg) gathers messages on their way out and sends them all at once. What the
// kernel has no room for is dropped and counted, as a full card would: the fabric waits for nobody.
// It keeps the time at which each was due, and how late they left.
//
// One thread each at a time.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "fabric/lateness.h"
#include "net/address.h"
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

struct SendCounters {
  std::uint64_t sent = 0;
  std::uint64_t refused = 0;
  Lateness late;  // of all
};

class SendBatch {
 public:
  static constexpr std::size_t kMessages = 64;

  // For a bound packet socket, or a UDP socket with the address that everything goes to.
  explicit SendBatch(std::size_t message_bytes, std::optional<net::SocketAddress> to = {});
  SendBatch(const SendBatch&) = delete;
  SendBatch& operator=(const SendBatch&) = delete;

  bool is_empty() const { return gathered_ == 0; }
  bool is_full() const { return gathered_ == kMessages; }
  // Room for a message of so many bytes, at most message_bytes; the batch is not full. `tos`
  // matters for UDP; `due` by the monotonic clock.
  base::MutableByteView add(std::size_t bytes, std::uint8_t tos, base::Instant due);
  // Empties it. What came of its messages.
  SendCounters send(int fd);
  std::size_t message_bytes() const { return message_bytes_; }

 private:
  static constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(int));

  void write_class(std::size_t index, std::uint8_t tos);
  Lateness lateness() const;

  std::size_t message_bytes_;
  std::optional<net::SocketAddress> to_;
  std::vector<std::uint8_t> buffers_;
  std::vector<std::uint64_t> controls_;  // aligned for cmsghdr
  std::vector<iovec> data_;
  std::vector<mmsghdr> headers_;
  std::vector<base::Instant> due_;
  std::size_t gathered_ = 0;
};

}  // namespace spillway::fabric
