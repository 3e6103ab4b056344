// SPDX-License-Identifier: Apache-2.0
//
// A second thread that makes system calls for its owner, which does other work meanwhile. It runs
// one job at a time, handed over and taken back without a lock. What a job touches belongs to the
// helper from start() until wait() has returned; the two calls order memory.
//
// Both threads spin briefly before they sleep, because jobs follow each other within microseconds
// while data moves. The helper of an idle rank sleeps. One owner, which calls from one thread.
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
  // `does`: its purpose, for cannot_make_thread(); `name`: for name_thread().
  static base::Result<std::unique_ptr<HelperThread>> make(const char* name, const char* does);
  ~HelperThread();  // waits for the job
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  // No job may be under way, and the job may not throw.
  void start(std::function<void()> job);
  // Returns once the job, if there is one, has ended.
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
