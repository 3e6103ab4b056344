// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/outlet.h"

#include <algorithm>
#include <utility>

#include "switch/fabric/urgent_thread.h"

namespace spillway::fabric {

unsigned default_writers(std::size_t ports, unsigned cores) {
  constexpr unsigned kCoresPerWriter = 4;
  return std::min(static_cast<unsigned>(ports), cores / kCoresPerWriter);
}

// ------------------------------------------------------------------ Writer

Writer::Writer() : thread_([this] { work(); }) {}

Writer::~Writer() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Writer::take(const Job& job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  changed_.notify_one();
}

void Writer::work() {
  const UrgentThread urgent;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) {
      return;
    }
    const Job job = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    job.outlet->write(job.batch, job.fd);
    lock.lock();
  }
}

// ------------------------------------------------------------------ Outlet

Outlet::Outlet(std::size_t message_bytes, std::optional<net::SocketAddress> to)
    : to_(std::move(to)) {
  batches_.push_back(std::make_unique<Slot>(message_bytes, to_));
}

void Outlet::use(Writer& writer) {
  writer_ = &writer;
  while (batches_.size() < kBatches) {
    batches_.push_back(std::make_unique<Slot>(message_bytes(), to_));
  }
}

base::MutableByteView Outlet::add(int fd, std::size_t bytes, std::uint8_t tos, base::Instant due) {
  if (batches_[current_]->batch.is_full()) {
    flush(fd);
  }
  return batches_[current_]->batch.add(bytes, tos, due);
}

void Outlet::flush(int fd) {
  Slot& slot = *batches_[current_];
  if (slot.batch.is_empty()) {
    return;
  }
  if (writer_ == nullptr) {
    write(current_, fd);
    return;
  }
  slot.is_leaving.store(true, std::memory_order_relaxed);
  writer_->take({.outlet = this, .batch = current_, .fd = fd});
  current_ = (current_ + 1) % batches_.size();
  batches_[current_]->is_leaving.wait(true, std::memory_order_acquire);
}

// Runs on the writer's thread, if there is one.
void Outlet::write(std::size_t index, int fd) {
  Slot& slot = *batches_[index];
  const SendCounters written = slot.batch.send(fd);
  {
    const std::lock_guard lock(mutex_);
    counters_.sent += written.sent;
    counters_.refused += written.refused;
    counters_.late.add(written.late);
  }
  slot.is_leaving.store(false, std::memory_order_release);
  slot.is_leaving.notify_one();
}

void Outlet::wait_until_written() {
  for (const auto& slot : batches_) {
    slot->is_leaving.wait(true, std::memory_order_acquire);
  }
}

SendCounters Outlet::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace spillway::fabric
