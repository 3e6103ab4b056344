// SPDX-License-Identifier: Apache-2.0
#include "runtime/compute_threads.h"

#include <algorithm>

namespace spillway::runtime {

unsigned compute_thread_count(unsigned processors, unsigned local_ranks) {
  constexpr unsigned kMax = 4;
  const unsigned share = processors / std::max(local_ranks, 1U);
  return std::min(share > 0 ? share - 1 : 0, kMax);
}

ComputeThreads::ComputeThreads(unsigned threads, Done on_done) : on_done_(std::move(on_done)) {
  for (unsigned i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

ComputeThreads::~ComputeThreads() {
  finish();
}

void ComputeThreads::finish() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) {
      thread.join();
    }
  }
}

void ComputeThreads::submit(collective::ComputeJob& job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(&job);
  }
  if (!threads_.empty()) {
    changed_.notify_one();
  }
}

collective::ComputeJob* ComputeThreads::take_inline() {
  if (!threads_.empty()) {
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  return take_most_urgent();
}

// The first of those with the highest priority.
collective::ComputeJob* ComputeThreads::take_most_urgent() {
  const auto chosen =
      std::max_element(jobs_.begin(), jobs_.end(),
                       [](const auto* a, const auto* b) { return a->priority < b->priority; });
  if (chosen == jobs_.end()) {
    return nullptr;
  }
  collective::ComputeJob* job = *chosen;
  jobs_.erase(chosen);
  return job;
}

void ComputeThreads::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_closing_ || !jobs_.empty(); });
    collective::ComputeJob* job = take_most_urgent();
    if (job == nullptr) {
      return;
    }
    lock.unlock();
    job->run();
    on_done_(*job);
    lock.lock();
  }
}

}  // namespace spillway::runtime
