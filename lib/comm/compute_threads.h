// SPDX-License-Identifier: Apache-2.0
//
// A few threads for sums and coding; the most urgent job runs first. With no threads (more ranks on
// the machine than processors), jobs queue for the communicator's own thread. It runs them between
// packets, so no rank starves and no thread has to be woken.
//
// Sleeping jobs, which wait for a device, have kSleepers threads of their own, made for the first
// such job. They need no processor, and only many of them keep a device busy.
//
// A job that throws (out of memory, say) or fails still counts as done: `on_done` gets the error.
//
// Only the communicator's thread calls submit() and take_inline(). The pool's threads call
// `on_done`.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "collective/operation_run.h"

namespace spillway::comm {

// Compute threads of a rank if `local_ranks` share `processors`: its share less one processor for
// packets, at most four.
unsigned compute_thread_count(unsigned processors, unsigned local_ranks);
// True if a rank has a processor for a second packet thread while nothing is coded. The first
// packet thread, the caller and sums need one each.
bool has_processor_for_helper(unsigned processors, unsigned local_ranks);

inline constexpr unsigned kSleepers = 16;

// Runs the job; returns an error if it threw or could not do its work.
base::Status run_job(collective::ComputeJob& job);

class ComputeThreads final : public collective::ComputePool {
 public:
  using Done = std::function<void(collective::ComputeJob&, const base::Status&)>;

  // Fails if threads cannot be made.
  static base::Result<std::unique_ptr<ComputeThreads>> start(unsigned threads, Done on_done);
  ~ComputeThreads() override;

  // Ends the threads once all submitted jobs are done. No job may be submitted afterwards.
  void finish();

  void submit(collective::ComputeJob& job) override;
  // The next job to run if the pool has no threads; null if none is queued.
  collective::ComputeJob* take_inline();

  // True while a job submitted to a thread is not done.
  bool is_busy() const { return unfinished_ > 0 || (sleepers_ && sleepers_->is_busy()); }

  unsigned threads() const { return static_cast<unsigned>(threads_.size()); }

 private:
  explicit ComputeThreads(Done on_done) : on_done_(std::move(on_done)) {}
  void work();
  void tell_done(collective::ComputeJob& job, const base::Status& status);
  collective::ComputeJob* take_most_urgent();
  bool has_sleepers();

  Done on_done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<collective::ComputeJob*> jobs_;
  std::atomic<std::size_t> unfinished_ = 0;  // counted only if there are threads
  bool is_closing_ = false;
  std::vector<std::thread> threads_;
  std::unique_ptr<ComputeThreads> sleepers_;
};

}  // namespace spillway::comm
