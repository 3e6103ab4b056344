// SPDX-License-Identifier: Apache-2.0
//
// A few threads that do the sums and the coding, the most urgent job first. With no threads (more
// ranks on the machine than processors) jobs wait in a list for the communicator's own thread,
// which runs them between packets: nobody is starved, and nobody waits to be woken.
//
// submit() and take_inline() on the communicator's thread; `on_done` is called from the threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "collective/operation_run.h"

namespace spillway::runtime {

// How many threads a rank gets where `local_ranks` share `processors`: what is left once each has
// one for its packets, four at most.
unsigned compute_thread_count(unsigned processors, unsigned local_ranks);

class ComputeThreads final : public collective::ComputePool {
 public:
  using Done = std::function<void(collective::ComputeJob&)>;

  ComputeThreads(unsigned threads, Done on_done);
  ~ComputeThreads() override;

  // Ends the threads once what was submitted is done; nothing may be submitted any more.
  void finish();

  void submit(collective::ComputeJob& job) override;
  // Without threads: the next job to run, or null.
  collective::ComputeJob* take_inline();

  unsigned threads() const { return static_cast<unsigned>(threads_.size()); }

 private:
  void work();
  collective::ComputeJob* take_most_urgent();

  Done on_done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<collective::ComputeJob*> jobs_;
  bool is_closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace spillway::runtime
