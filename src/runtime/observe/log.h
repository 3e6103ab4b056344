// SPDX-License-Identifier: Apache-2.0
//
// The log: lines for a person who asks why, on standard error or in a file.
//
//   SPILLWAY_DEBUG         NONE, VERSION, WARN, INFO or TRACE, each with those before it. Without
//                          it: warnings, and no line about the version.
//   SPILLWAY_DEBUG_SUBSYS  of INFO and TRACE, what about: a list such as INIT,NET,COLL or ALL; with
//                          a ^ in front, all but those. Without it: INIT,BOOTSTRAP,ENV.
//   SPILLWAY_DEBUG_FILE    a path with %h and %p (identity.h); lines are added to the file.
//
// A line is `host:pid:tid [rank] SPILLWAY INFO message`, and one write(): lines of several threads
// and processes do not mix. A rank is that of the thread's ScopedLogRank, "-" without one.
//
// Any thread may log; a level that is off costs one relaxed load and its arguments. A config is
// applied while no other thread logs. What is not written is lost: the log never stops the work.
// Lost packets are counted, not logged (docs/architecture.md).
//
// Limits: a message is cut at kMaxLineBytes, what a pipe takes in one piece.
#pragma once

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/environment.h"

namespace spillway::runtime {

inline constexpr std::size_t kMaxLineBytes = 4096;

enum class LogLevel : std::uint8_t { kNone, kVersion, kWarn, kInfo, kTrace };
inline constexpr std::size_t kLogLevels = 5;

enum class LogSubsystem : std::uint32_t {
  kInit = 1 << 0,
  kBootstrap = 1 << 1,
  kEnv = 1 << 2,
  kNet = 1 << 3,
  kColl = 1 << 4,
  kCodec = 1 << 5,
  kMetrics = 1 << 6,
};

struct LogConfig {
  // By level: the subsystems that speak.
  std::array<std::uint32_t, kLogLevels> subsystems{};
  std::string file{};  // expanded; empty: standard error
};

base::Result<LogConfig> log_config(const base::Environment& environment);

// Says the version where that is asked for.
void apply_log_config(const LogConfig& config);

// As the environment says, the first time it is called.
base::Status start_log(const base::Environment& environment);

// Lines of this thread carry `rank` while it lives.
class ScopedLogRank {
 public:
  explicit ScopedLogRank(std::uint32_t rank);
  ~ScopedLogRank();
  ScopedLogRank(const ScopedLogRank&) = delete;
  ScopedLogRank& operator=(const ScopedLogRank&) = delete;

 private:
  std::int64_t before_;
};

namespace internal {
extern std::array<std::atomic<std::uint32_t>, kLogLevels> log_subsystems;
void write_log_line(LogLevel level, std::string_view message);
}  // namespace internal

inline bool log_enabled(LogLevel level, LogSubsystem subsystem) {
  const auto& speaking = internal::log_subsystems[static_cast<std::size_t>(level)];
  return (speaking.load(std::memory_order_relaxed) & static_cast<std::uint32_t>(subsystem)) != 0;
}

template <typename... Args>
void log(LogLevel level, LogSubsystem subsystem, fmt::format_string<Args...> format,
         Args&&... args) {
  if (log_enabled(level, subsystem)) [[unlikely]] {
    internal::write_log_line(level, fmt::format(format, std::forward<Args>(args)...));
  }
}

// Warnings are not chosen by subsystem.
template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kWarn, LogSubsystem::kInit, format, std::forward<Args>(args)...);
}

template <typename... Args>
void log_info(LogSubsystem subsystem, fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kInfo, subsystem, format, std::forward<Args>(args)...);
}

template <typename... Args>
void log_trace(LogSubsystem subsystem, fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kTrace, subsystem, format, std::forward<Args>(args)...);
}

}  // namespace spillway::runtime
