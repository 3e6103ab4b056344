// SPDX-License-Identifier: Apache-2.0
#include "net/system_call.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/utsname.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace spillway::net {
namespace {

// Time that a thread spins before it sleeps: roughly the cost of falling asleep and waking up.
constexpr std::chrono::microseconds kSpinTime{30};
constexpr int kSpinsBetweenClocks = 64;

}  // namespace

base::Status system_error(std::string_view attempt, int error, std::string_view hint) {
  const std::string reason = std::generic_category().message(error);
  return {base::StatusCode::kUnavailable,
          hint.empty() ? fmt::format("cannot {}: {}", attempt, reason)
                       : fmt::format("cannot {}: {}; {}", attempt, reason, hint)};
}

base::Status cannot_make_thread(std::string_view does, const std::system_error& error) {
  return system_error(fmt::format("make the thread that {}", does), error.code().value(),
                      "raise the limit on processes and threads (ulimit -u, or the container's "
                      "pids.max), or end some");
}

void name_thread(const char* name) {
  ::prctl(PR_SET_NAME, name);
}

base::Status fill_random(base::MutableByteView bytes) {
  // The kernel returns up to 256 bytes in one call, and waits until it has randomness.
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno != EINTR) {
      return system_error("get random bytes from the kernel", errno);
    }
    bytes = bytes.subspan(got < 0 ? 0 : static_cast<std::size_t>(got));
  }
  return {};
}

std::optional<KernelRelease> parse_kernel_release(std::string_view text) {
  const char* end = text.data() + text.size();
  KernelRelease release;
  const auto [dot, first_error] = std::from_chars(text.data(), end, release.major);
  if (first_error != std::errc() || dot == end || *dot != '.') {
    return std::nullopt;
  }
  if (std::from_chars(dot + 1, end, release.minor).ec != std::errc()) {
    return std::nullopt;
  }
  return release;
}

std::optional<KernelRelease> kernel_release() {
  utsname names = {};
  return ::uname(&names) == 0 ? parse_kernel_release(names.release) : std::nullopt;
}

// ------------------------------------------------------------------ HelperThread

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
  const auto asleep_at = std::chrono::steady_clock::now() + kSpinTime;
  while (state_.load(std::memory_order_acquire) == state) {
    for (int i = 0; i < kSpinsBetweenClocks; ++i) {
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
