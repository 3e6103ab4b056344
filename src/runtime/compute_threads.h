// SPDX-License-Identifier: Apache-2.0
//
// A few threads that do the sums and the coding, the most urgent job first. With no threads (more
// ranks on the machine than processors) jobs wait in a list for the communicator's own thread,
// which runs them between packets: nobody is starved, and nobody waits to be woken.
//
// Jobs that sleep, as they wait for a device, have kSleepers threads of their own, which are made
// for the first of them: they need no processor, and a device is busy only with many of them.
//
// A job that throws, for want of memory, or could not do its work, is done as well: `on_done` is
// told of it.
//
// submit() and take_inline() on the communicator's thread; `on_done` is called from the threads.
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

namespace spillway::runtime {

// How many threads a rank gets where `local_ranks` share `processors`: what is left once each has
// one for its packets, four at most.
unsigned compute_thread_count(unsigned processors, unsigned local_ranks);
// Whether a rank has a processor for a second thread that moves packets, while nothing is coded:
// beside those for the first, for the caller and for sums.
bool has_processor_for_helper(unsigned processors, unsigned local_ranks);

inline constexpr unsigned kSleepers = 16;

// Runs it; a sentence where it threw or could not do it.
base::Status run_job(collective::ComputeJob& job);

class ComputeThreads final : public collective::ComputePool {
 public:
  using Done = std::function<void(collective::ComputeJob&, const base::Status&)>;

  // Fails where threads cannot be made.
  static base::Result<std::unique_ptr<ComputeThreads>> start(unsigned threads, Done on_done);
  ~ComputeThreads() override;

  // Ends the threads once what was submitted is done; nothing may be submitted any more.
  void finish();

  void submit(collective::ComputeJob& job) override;
  // Without threads: the next job to run, or null.
  collective::ComputeJob* take_inline();

  // Something that was submitted to a thread is not done.
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
  std::atomic<std::size_t> unfinished_ = 0;  // with threads
  bool is_closing_ = false;
  std::vector<std::thread> threads_;
  std::unique_ptr<ComputeThreads> sleepers_;
};

}  // namespace spillway::runtime
