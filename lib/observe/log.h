// SPDX-License-Identifier: Apache-2.0
//
// The log: lines for people, on standard error or in a file.
//
//   SPILLWAY_DEBUG         NONE, VERSION, WARN, INFO or TRACE, each with those before it.
//                          Unset: warnings, and no line about the version.
//   SPILLWAY_DEBUG_SUBSYS  subsystems for INFO and TRACE: a list such as INIT,NET,COLL or ALL; a
//                          leading ^ excludes the list. Unset: INIT,BOOTSTRAP,ENV.
//   SPILLWAY_DEBUG_FILE    a path with %h and %p (expand_path()); lines are appended.
//
// A line is `host:pid:tid [rank] SPILLWAY INFO message` in one write(), so lines of several threads
// and processes do not mix. The rank is that of the thread's ScopedLogRank, or "-".
//
// Any thread may log. A disabled level costs one relaxed load and its arguments. Apply a config
// only while no other thread logs. Lines that cannot be written are lost: the log never stops the
// work. Lost packets are counted, not logged (docs/architecture.md).
//
// Limits: a line is cut at kMaxLineBytes, which a pipe takes in one piece.
#pragma once

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/environment.h"

namespace spillway::observe {

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
  // The enabled subsystems, by level.
  std::array<std::uint32_t, kLogLevels> subsystems{};
  std::string file{};  // expanded; empty: standard error
};

base::Result<LogConfig> log_config(const base::Environment& environment);

// Logs the version if that level is enabled.
void apply_log_config(const LogConfig& config);

// Configures the log from the environment, and warns of SPILLWAY_* variables that nothing reads. On
// the first call only.
base::Status start_log(const base::Environment& environment);

// While it lives, this thread's lines carry `rank`.
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

// Warnings ignore the subsystem filter.
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

// The communicator and rank that logs, dumps and metrics name; and the placeholders in paths, which
// differ from process to process:
//
//   %h host name, up to its first dot    %p process id    %r rank    %c communicator's name    %% %
//
// A % before anything else stays as it is. Plain values; any thread.

struct Identity {
  std::string communicator = "world";
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint32_t local_rank = 0;  // among the job's ranks on this machine
  std::uint32_t servers = 0;     // parameter servers, which `world` counts too
};

// Host name of this machine, up to its first dot.
std::string host_name();

// Without an `identity`, %r and %c stay as they are. A '/' in a communicator's name becomes '_'.
std::string expand_path(std::string_view pattern, const Identity* identity);

}  // namespace spillway::observe
