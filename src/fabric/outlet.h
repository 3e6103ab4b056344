// SPDX-License-Identifier: Apache-2.0
//
// Where a port's frames leave. Most of what an emulated fabric costs is here: a frame that is
// written to an interface is carried through the receiving host's network stack by whoever writes
// it. So it is done by Writers, threads beside the one that runs the network, where the machine has
// cores for them; without, by the fabric's thread itself. A port has one writer: its frames leave
// in the order in which they were added, and nothing else depends on who writes them.
//
// An Outlet gathers frames in one of kBatches batches; flush() hands it to the writer and goes on
// with the next, which it waits for where all are on their way: a fabric whose writers do not keep
// up is late, and says so, but holds no more than that.
//
// Threads: an Outlet belongs to the fabric's thread. A Writer outlives no outlet that uses it, so
// it goes first; what it was handed is written by then.
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
#include "fabric/socket_batches.h"
#include "net/address.h"

namespace spillway::fabric {

// How many writers a fabric of so many ports has on so many cores: a quarter of them, for hosts'
// programs need the others; none where cores are few.
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

  // Before anything was added.
  void use(Writer& writer);

  // As SendBatch::add().
  base::MutableByteView add(int fd, std::size_t bytes, std::uint8_t tos, base::Instant due);
  void flush(int fd);
  // Until all that was flushed has left.
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
