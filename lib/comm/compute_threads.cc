// SPDX-License-Identifier: Apache-2.0
#include "comm/compute_threads.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "base/clock.h"
#include "net/system_call.h"

namespace spillway::comm {

unsigned compute_thread_count(unsigned processors, unsigned local_ranks) {
  constexpr unsigned kMax = 4;
  const unsigned share = processors / std::max(local_ranks, 1U);
  return std::min(share > 0 ? share - 1 : 0, kMax);
}

bool has_processor_for_helper(unsigned processors, unsigned local_ranks) {
  constexpr unsigned kLeast = 4;
  return processors / std::max(local_ranks, 1U) >= kLeast;
}

base::Status run_job(collective::ComputeJob& job) {
  const base::MonotonicClock clock;
  const base::Instant begun = clock.now();
  try {
    job.run();
    job.took = clock.now() - begun;
  } catch (const std::bad_alloc&) {
    return {base::StatusCode::kLimitExceeded,
            "there is no memory left to calculate with; use smaller tensors or fewer at once, or "
            "raise the limit (ulimit -v, or the container's)"};
  } catch (const std::exception& thrown) {
    return {base::StatusCode::kInternal, std::string("a calculation failed: ") + thrown.what()};
  }
  return job.failure;
}

base::Result<std::unique_ptr<ComputeThreads>> ComputeThreads::start(unsigned threads,
                                                                    Done on_done) {
  std::unique_ptr<ComputeThreads> pool(new ComputeThreads(std::move(on_done)));
  try {
    for (unsigned i = 0; i < threads; ++i) {
      pool->threads_.emplace_back([raw = pool.get()] {
        net::name_thread("spillway-sums");
        raw->work();
      });
    }
  } catch (const std::system_error& error) {
    return net::cannot_make_thread("calculates", error);
  }
  return pool;
}

ComputeThreads::~ComputeThreads() {
  finish();
}

void ComputeThreads::finish() {
  if (sleepers_) {
    sleepers_->finish();
  }
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

// If sleeper threads cannot be made, sleeping jobs run as ordinary ones.
bool ComputeThreads::has_sleepers() {
  if (!sleepers_) {
    base::Result<std::unique_ptr<ComputeThreads>> made = start(kSleepers, on_done_);
    if (made.ok()) {
      sleepers_ = std::move(made).value();
    }
  }
  return sleepers_ != nullptr;
}

void ComputeThreads::submit(collective::ComputeJob& job) {
  if (job.sleeps && has_sleepers()) {
    job.sleeps = false;  // an ordinary job for the sleepers' own pool
    sleepers_->submit(job);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(&job);
    unfinished_ += threads_.empty() ? 0 : 1;  // before a thread can take it and count down
  }
  changed_.notify_one();
}

collective::ComputeJob* ComputeThreads::take_inline() {
  if (!threads_.empty()) {
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  return take_most_urgent();
}

// Takes the oldest job of the highest priority.
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

// Retries until the callback has memory to run: a caller waits for this job.
void ComputeThreads::tell_done(collective::ComputeJob& job, const base::Status& status) {
  for (bool is_told = false; !is_told;) {
    try {
      on_done_(job, status);
      is_told = true;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
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
    const base::Status status = run_job(*job);
    --unfinished_;
    tell_done(*job, status);
    lock.lock();
  }
}

}  // namespace spillway::comm
