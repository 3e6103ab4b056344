// SPDX-License-Identifier: Apache-2.0
//
// A second thread that makes system calls for a first, which goes on with something else: one job
// at a time, handed over and taken back without a lock. What a job touches belongs to the helper
// from start() until wait() has returned; the two calls order memory.
//
// Both wait a little without sleeping, because jobs follow each other within microseconds while
// data moves; the helper of an idle rank sleeps. One owner; its calls come from one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "base/status.h"

namespace spillway::net {

class HelperThread {
 public:
  // `does`: what it is for, as cannot_make_thread() takes it; `name` as name_thread() does.
  static base::Result<std::unique_ptr<HelperThread>> make(const char* name, const char* does);
  ~HelperThread();  // waits for the job
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  // There must be no job under way; it may not throw.
  void start(std::function<void()> job);
  // Until the job, if there is one, has ended.
  void wait();
  bool is_busy() const { return state_.load(std::memory_order_acquire) == State::kWorking; }

 private:
  enum class State : std::uint32_t { kIdle, kWorking, kEnding };

  HelperThread() = default;
  void work(const char* name);
  void wait_while(State state) const;

  std::atomic<State> state_{State::kIdle};
  std::function<void()> job_;
  std::thread thread_;
};

}  // namespace spillway::net
