// SPDX-License-Identifier: Apache-2.0
//
// Work that other threads hand to a loop: a list under a lock, and a descriptor that wakes the
// loop. Any thread may call push() and wake(); the rest is for the loop's. The list is unbounded.
#pragma once

#include <sys/eventfd.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "net/system_call.h"

namespace spillway::net {

template <typename Task>
class TaskQueue {
 public:
  TaskQueue() : wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  bool valid() const { return wake_.valid(); }
  // Readable while there may be tasks.
  int fd() const { return wake_.get(); }

  void push(Task task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake();
  }
  // Whether fd() may be readable; almost free.
  bool woken() const { return woken_; }
  // Makes fd() readable; safe in a signal handler.
  void wake() {
    woken_ = true;
    ::eventfd_write(wake_.get(), 1);
  }

  // All tasks so far, in order. For the loop's thread.
  std::vector<Task> take() {
    woken_ = false;
    eventfd_t count = 0;
    ::eventfd_read(wake_.get(), &count);
    const std::lock_guard lock(mutex_);
    return std::exchange(tasks_, {});
  }

 private:
  UniqueFd wake_;
  std::atomic<bool> woken_{false};
  std::mutex mutex_;
  std::vector<Task> tasks_;
};

}  // namespace spillway::net
