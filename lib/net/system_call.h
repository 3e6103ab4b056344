// SPDX-License-Identifier: Apache-2.0
//
// Tools for all code that makes system calls: an owning descriptor, durations as the kernel takes
// them, errors as a Status that names attempt and reason, random bytes, and the kernel's release.
// Also the two ways in which threads share such work: HelperThread makes calls for its owner,
// TaskQueue hands work to a loop.
//
// The functions are stateless and may be called by any thread. The classes state their own rules.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"

namespace spillway::net {

// ------------------------------------------------------------------ descriptors and errors

// Closes the file descriptor that it owns. Movable, not copyable.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // Gives up ownership.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Negative durations become zero.
inline timespec timespec_of(base::Duration duration) {
  const std::int64_t count = std::max<std::int64_t>(duration.count(), 0);
  return {.tv_sec = static_cast<time_t>(count / 1'000'000'000),
          .tv_nsec = static_cast<long>(count % 1'000'000'000)};
}

inline base::Duration duration_of(const timespec& time) {
  return base::seconds(time.tv_sec) + base::nanoseconds(time.tv_nsec);
}

// "cannot bind 127.0.0.1:7000: Address already in use". `error` is an errno; `hint`, if any, says
// what to do about it.
base::Status system_error(std::string_view attempt, int error, std::string_view hint = {});

// The error for a thread that could not be made, with advice. `does`: its purpose, as in "sends
// packets".
base::Status cannot_make_thread(std::string_view does, const std::system_error& error);

// Sets the calling thread's name in top and perf; the kernel keeps 15 characters.
void name_thread(const char* name);

// Fills `bytes` from the kernel's random number generator.
base::Status fill_random(base::MutableByteView bytes);

struct KernelRelease {
  unsigned major = 0;
  unsigned minor = 0;

  friend auto operator<=>(const KernelRelease&, const KernelRelease&) = default;
};

// Parses "6.1.0-18-amd64", "5.15" or "6.6-rc1+"; empty if the text does not begin with two numbers.
std::optional<KernelRelease> parse_kernel_release(std::string_view text);

// The running kernel's release.
std::optional<KernelRelease> kernel_release();

// ------------------------------------------------------------------ threads

// A second thread that makes system calls while its owner does other work. It runs one job at a
// time, passed without a lock. Data that a job uses belongs to the helper from start() until wait()
// has returned; these two calls order memory.
//
// Both threads spin briefly before they sleep, because jobs follow each other within microseconds
// while data moves. The helper of an idle rank sleeps. One owner, which calls from one thread.
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

// Work that other threads hand to a loop: a list under a lock, and a descriptor that wakes the
// loop. Any thread may call push() and wake(); the loop's thread calls the rest. The list is
// unbounded.
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
  // True if fd() may be readable; costs almost nothing.
  bool woken() const { return woken_; }
  // Makes fd() readable; safe in a signal handler.
  void wake() {
    woken_ = true;
    ::eventfd_write(wake_.get(), 1);
  }

  // Removes and returns all tasks so far, in order.
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
