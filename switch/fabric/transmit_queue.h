// SPDX-License-Identifier: Apache-2.0
//
// Batches of messages to and from a socket, and the queue that sends frames from a thread of its
// own. A batch belongs to one thread at a time; TransmitQueue's comment says who may call it.
#pragma once

#include <sched.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "net/address.h"
#include "net/sockets.h"

namespace spillway::fabric {

// ------------------------------------------------------------------ batches
//
// Messages to and from a socket, many per call.
//
// ReceiveBatch (recvmmsg) reports with each message when it arrived. If the socket asked for them,
// it also reports DSCP and ECN, a packet socket's auxiliary data, and the number of lost messages.
// Its buffers hold the messages of one call.
//
// SendBatch (sendmmsg) gathers outgoing messages and sends them together. Messages that
// the kernel has no room for are dropped and counted, as by a full card: the fabric never waits. It
// keeps the time at which each message was due, and how late it left.
//
// Each object is used by one thread at a time.

// Lateness of any number of frames in constant memory: count, mean, maximum, and a histogram. Its
// buckets grow by a quarter of a doubling, so a percentile is at most a quarter above the truth.
// Early frames count as on time. Ports' values can be added up. One thread.

class Lateness {
 public:
  void add(base::Duration late);
  void add(const Lateness& other);

  std::uint64_t count() const { return count_; }
  base::Duration latest() const { return latest_; }
  base::Duration mean() const;
  // The lateness that `percent` % of the frames did not exceed.
  base::Duration percentile(unsigned percent) const;

 private:
  static constexpr std::size_t kPerDoubling = 4;
  static constexpr std::size_t kBuckets = 30 * kPerDoubling;  // from 1 us to 17 minutes

  static std::size_t bucket_of(base::Duration late);
  static base::Duration end_of(std::size_t bucket);

  std::uint64_t count_ = 0;
  base::Duration sum_;
  base::Duration latest_;
  std::array<std::uint64_t, kBuckets> buckets_{};
};

struct Received {
  base::MutableByteView bytes;
  bool is_cut = false;       // longer than the buffer
  net::ArrivalInfo notes;    // DSCP and ECN of UDP; the time by the monotonic clock
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

// Sends a port's frames. Most of an emulated fabric's cost is here: the thread that writes a frame
// to an interface also carries it through the receiving host's network stack. So Writers, threads
// beside the one that runs the network, do it if the machine has enough cores. Otherwise the
// fabric's thread does. A port has one writer, so its frames leave in the order in which they were
// added. Nothing else depends on who writes them.
//
// A TransmitQueue gathers frames in one of kBatches batches. flush() hands the batch to the writer
// and goes on with the next one; if all are in flight, it waits. A fabric whose writers do not keep
// up is late, and reports it, but its memory stays bounded.
//
// Threads: a TransmitQueue belongs to the fabric's thread. A Writer must be destroyed before the
// queues that use it; it first writes all that it was handed.

// Default number of writers: at most one per port, and at most a quarter of the cores, because the
// hosts' programs need the others.
unsigned default_writers(std::size_t ports, unsigned cores);

class TransmitQueue;

class Writer {
 public:
  Writer();
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

 private:
  friend class TransmitQueue;
  struct Job {
    TransmitQueue* queue = nullptr;
    std::size_t batch = 0;
    int fd = -1;
  };

  void take(const Job& job);
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool ends_ = false;
  std::thread thread_;
};

class TransmitQueue {
 public:
  static constexpr std::size_t kBatches = 4;

  explicit TransmitQueue(std::size_t message_bytes, std::optional<net::SocketAddress> to = {});
  TransmitQueue(const TransmitQueue&) = delete;
  TransmitQueue& operator=(const TransmitQueue&) = delete;

  // Call before anything is added.
  void use(Writer& writer);

  // Like SendBatch::add().
  base::MutableByteView add(int fd, std::size_t bytes, std::uint8_t tos, base::Instant due);
  void flush(int fd);
  // Waits until all that was flushed has left.
  void wait_until_written();
  std::size_t message_bytes() const { return batches_.front()->batch.message_bytes(); }
  SendCounters counters() const;

 private:
  friend class Writer;
  struct Slot {
    Slot(std::size_t message_bytes, const std::optional<net::SocketAddress>& to)
        : batch(message_bytes, to) {}
    SendBatch batch;
    std::atomic<bool> is_leaving = false;
  };

  void write(std::size_t index, int fd);

  std::optional<net::SocketAddress> to_;
  std::vector<std::unique_ptr<Slot>> batches_;
  std::size_t current_ = 0;
  Writer* writer_ = nullptr;
  mutable std::mutex mutex_;
  SendCounters counters_;  // under mutex_
};

// While this object lives, the calling thread runs before ordinary threads and wakes up on time,
// not some microseconds later. If the system does not permit it, nothing changes. Threads started
// meanwhile are ordinary. Create and destroy it on the same thread.

class RealTimePriority {
 public:
  RealTimePriority();
  ~RealTimePriority();
  RealTimePriority(const RealTimePriority&) = delete;
  RealTimePriority& operator=(const RealTimePriority&) = delete;

 private:
  int policy_before_;
  sched_param priority_before_{};
  int slack_before_;
};

}  // namespace spillway::fabric
