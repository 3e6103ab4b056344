// SPDX-License-Identifier: Apache-2.0
#include "net/helper_thread.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "net/system_call.h"

namespace spillway::net {
namespace {

// Roughly the cost of falling asleep and waking up.
constexpr std::chrono::microseconds kAwake{30};
constexpr int kLooksBetweenClocks = 64;

}  // namespace

base::Result<std::unique_ptr<HelperThread>> HelperThread::make(const char* name, const char* does) {
  std::unique_ptr<HelperThread> helper(new HelperThread());
  try {
    helper->thread_ = std::thread([raw = helper.get(), name] { raw->work(name); });
  } catch (const std::system_error& error) {
    return cannot_make_thread(does, error);
  }
  return helper;
}

HelperThread::~HelperThread() {
  if (thread_.joinable()) {
    wait();
    state_.store(State::kEnding, std::memory_order_release);
    state_.notify_one();
    thread_.join();
  }
}

void HelperThread::start(std::function<void()> job) {
  SPILLWAY_CHECK(!is_busy());
  job_ = std::move(job);
  state_.store(State::kWorking, std::memory_order_release);
  state_.notify_one();
}

void HelperThread::wait() {
  if (is_busy()) {
    wait_while(State::kWorking);
  }
}

void HelperThread::wait_while(State state) const {
  const auto asleep_at = std::chrono::steady_clock::now() + kAwake;
  while (state_.load(std::memory_order_acquire) == state) {
    for (int i = 0; i < kLooksBetweenClocks; ++i) {
      if (state_.load(std::memory_order_acquire) != state) {
        return;
      }
    }
    if (std::chrono::steady_clock::now() >= asleep_at) {
      state_.wait(state, std::memory_order_acquire);
    }
  }
}

void HelperThread::work(const char* name) {
  name_thread(name);
  for (;;) {
    wait_while(State::kIdle);
    if (state_.load(std::memory_order_acquire) == State::kEnding) {
      return;
    }
    job_();
    state_.store(State::kIdle, std::memory_order_release);
    state_.notify_one();
  }
}

}  // namespace spillway::net
