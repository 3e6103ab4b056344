// SPDX-License-Identifier: Apache-2.0
//
// Messages to and from a socket, many per call.
//
// ReceiveBatch (recvmmsg) reports with each message when it arrived. If the socket asked for them,
// it also reports DSCP and ECN, a packet socket's auxiliary data, and the number of lost messages.
// Its buffers hold the messages of one call.
//
// SendBatch (sendmmsg) gathers outgoing messages and sends them together. What the kernel has no
// room for is dropped and counted, as by a full card: the fabric never waits. It keeps the time at
// which each message was due, and how late it left.
//
// Each object is used by one thread at a time.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "net/address.h"
#include "net/arrival_notes.h"
#include "switch/fabric/lateness.h"

namespace spillway::fabric {

struct Received {
  base::MutableByteView bytes;
  bool is_cut = false;       // longer than the buffer
  net::ArrivalNotes notes;   // DSCP and ECN of UDP; the time by the monotonic clock
  bool no_checksum = false;  // packet sockets: its TCP or UDP checksum was left to the card
  std::optional<std::uint32_t> vlan;  // packet sockets: type << 16 | tag that the kernel took out
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

  // Receives what waits at the socket, without blocking. Returns the number of messages.
  std::size_t receive(int fd);
  // One message of the batch. `now` is by base::MonotonicClock, read after receive().
  Received message(std::size_t index, base::Instant now);
  // Messages that the kernel dropped, for UDP sockets that asked for this count.
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
  Lateness late;  // of sent and refused messages
};

class SendBatch {
 public:
  static constexpr std::size_t kMessages = 64;

  // For a bound packet socket, or for a UDP socket with one destination.
  explicit SendBatch(std::size_t message_bytes, std::optional<net::SocketAddress> to = {});
  SendBatch(const SendBatch&) = delete;
  SendBatch& operator=(const SendBatch&) = delete;

  bool is_empty() const { return gathered_ == 0; }
  bool is_full() const { return gathered_ == kMessages; }
  // Room for a message of `bytes` bytes, at most message_bytes. The batch must not be full. `tos`
  // matters only for UDP; `due` is by the monotonic clock.
  base::MutableByteView add(std::size_t bytes, std::uint8_t tos, base::Instant due);
  // Sends and empties the batch. Returns what happened to its messages.
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
