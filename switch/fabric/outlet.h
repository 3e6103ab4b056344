// SPDX-License-Identifier: Apache-2.0
//
// Sends a port's frames. Most of an emulated fabric's cost is here: the thread that writes a frame
// to an interface also carries it through the receiving host's network stack. So Writers, threads
// beside the one that runs the network, do it if the machine has enough cores. Otherwise the
// fabric's thread does. A port has one writer, so its frames leave in the order in which they were
// added. Nothing else depends on who writes them.
//
// An Outlet gathers frames in one of kBatches batches. flush() hands the batch to the writer and
// goes on with the next one; if all are in flight, it waits. A fabric whose writers do not keep up
// is late, and reports it, but its memory stays bounded.
//
// Threads: an Outlet belongs to the fabric's thread. A Writer must be destroyed before the outlets
// that use it; it first writes all that it was handed.
#pragma once

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
#include "switch/fabric/socket_batches.h"

namespace spillway::fabric {

// Default number of writers: at most one per port, and at most a quarter of the cores, because the
// hosts' programs need the others.
unsigned default_writers(std::size_t ports, unsigned cores);

class Outlet;

class Writer {
 public:
  Writer();
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

 private:
  friend class Outlet;
  struct Job {
    Outlet* outlet = nullptr;
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

class Outlet {
 public:
  static constexpr std::size_t kBatches = 4;

  explicit Outlet(std::size_t message_bytes, std::optional<net::SocketAddress> to = {});
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

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

}  // namespace spillway::fabric
