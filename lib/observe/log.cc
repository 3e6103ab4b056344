// SPDX-License-Identifier: Apache-2.0
#include "observe/log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <mutex>
#include <optional>
#include <vector>

#include "base/own_file.h"
#include "base/text.h"
#include "base/version.h"

namespace spillway::observe {

namespace {

constexpr std::uint32_t kEverything = ~0U;
constexpr std::array<const char*, kLogLevels> kLevelNames = {"NONE", "VERSION", "WARN", "INFO",
                                                             "TRACE"};
constexpr std::array<std::pair<const char*, std::uint32_t>, 8> kSubsystemNames = {{
    {"INIT", static_cast<std::uint32_t>(LogSubsystem::kInit)},
    {"BOOTSTRAP", static_cast<std::uint32_t>(LogSubsystem::kBootstrap)},
    {"ENV", static_cast<std::uint32_t>(LogSubsystem::kEnv)},
    {"NET", static_cast<std::uint32_t>(LogSubsystem::kNet)},
    {"COLL", static_cast<std::uint32_t>(LogSubsystem::kColl)},
    {"CODEC", static_cast<std::uint32_t>(LogSubsystem::kCodec)},
    {"METRICS", static_cast<std::uint32_t>(LogSubsystem::kMetrics)},
    {"ALL", kEverything},
}};

constexpr std::int64_t kNoRank = -1;
thread_local std::int64_t thread_rank = kNoRank;
std::atomic<int> log_fd{STDERR_FILENO};

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

// nullopt if the text is no level's name.
std::optional<LogLevel> level_named(std::string_view text) {
  const auto* found = std::find(kLevelNames.begin(), kLevelNames.end(), text);
  return found == kLevelNames.end()
             ? std::nullopt
             : std::optional(static_cast<LogLevel>(found - kLevelNames.begin()));
}

std::uint32_t subsystem_named(std::string_view text) {
  const std::string wanted = upper(text);
  for (const auto& [name, bits] : kSubsystemNames) {
    if (name == wanted) {
      return bits;
    }
  }
  return 0;
}

std::vector<std::string_view> list_of(std::string_view text) {
  std::vector<std::string_view> names;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    names.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return names;
}

std::uint32_t subsystems_named(std::string_view text) {
  const bool excludes = text.starts_with('^');
  std::uint32_t named = 0;
  for (const std::string_view name : list_of(text.substr(excludes ? 1 : 0))) {
    named |= subsystem_named(name);
  }
  return excludes ? ~named : named;
}

// Logs to standard error if the file cannot be opened.
void redirect(const std::string& file) {
  int fd = STDERR_FILENO;
  if (!file.empty()) {
    fd = base::open_own_file(file.c_str(), base::Opening::kAppend);
  }
  const int error = errno;
  const int before = log_fd.exchange(fd < 0 ? STDERR_FILENO : fd, std::memory_order_relaxed);
  if (before != STDERR_FILENO) {
    ::close(before);
  }
  if (fd < 0) {
    log_warn("SPILLWAY_DEBUG_FILE: {}: the log goes to standard error",
             base::not_opened(file, error).message());
  }
}

const std::string& cached_host_name() {
  static const std::string name = host_name();
  return name;
}

std::string rank_text() {
  return thread_rank == kNoRank ? "-" : std::to_string(thread_rank);
}

// Forces the message onto one line, whatever it contains.
void finish_line(std::string& line) {
  std::replace(line.begin(), line.end(), '\n', ' ');
  line = base::printable(line);  // may contain a peer's name
  line.resize(std::min(line.size(), kMaxLineBytes - 1));
  line += '\n';
}

}  // namespace

namespace internal {

std::array<std::atomic<std::uint32_t>, kLogLevels> log_subsystems = {0, 0, kEverything, 0, 0};

void write_log_line(LogLevel level, std::string_view message) {
  const int saved_errno = errno;
  std::string line = fmt::format("{}:{}:{} [{}] SPILLWAY {} {}", cached_host_name(), ::getpid(),
                                 ::syscall(SYS_gettid), rank_text(),
                                 kLevelNames[static_cast<std::size_t>(level)], message);
  finish_line(line);
  ssize_t written = 0;
  do {
    written = ::write(log_fd.load(std::memory_order_relaxed), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  errno = saved_errno;
}

}  // namespace internal

base::Result<LogConfig> log_config(const base::Environment& environment) {
  const base::Result<std::string> debug = environment.checked_text("SPILLWAY_DEBUG");
  const base::Result<std::string> names = environment.checked_text("SPILLWAY_DEBUG_SUBSYS");
  if (!debug.ok() || !names.ok()) {
    return debug.ok() ? names.status() : debug.status();
  }
  const std::optional<LogLevel> asked = level_named(*debug);
  const LogLevel level = asked.value_or(LogLevel::kWarn);
  const std::uint32_t chosen = subsystems_named(*names);
  LogConfig config;
  const auto at = [&](LogLevel which, std::uint32_t speaking) {
    config.subsystems[static_cast<std::size_t>(which)] = level >= which ? speaking : 0;
  };
  at(LogLevel::kVersion, asked ? kEverything : 0);
  at(LogLevel::kWarn, kEverything);
  at(LogLevel::kInfo, chosen);
  at(LogLevel::kTrace, chosen);
  config.file = expand_path(environment.text("SPILLWAY_DEBUG_FILE"), nullptr);
  return config;
}

void apply_log_config(const LogConfig& config) {
  for (std::size_t level = 0; level < kLogLevels; ++level) {
    internal::log_subsystems[level].store(config.subsystems[level], std::memory_order_relaxed);
  }
  redirect(config.file);
  log(LogLevel::kVersion, LogSubsystem::kInit, "spillway {}", base::kVersion);
}

base::Status start_log(const base::Environment& environment) {
  static std::once_flag once;
  const base::Result<LogConfig> config = log_config(environment);
  if (config.ok()) {
    std::call_once(once, [&] {
      apply_log_config(*config);
      base::warn_of_unknown_variables(environment,
                                      [](const std::string& warning) { log_warn("{}", warning); });
    });
  }
  return config.status();
}

ScopedLogRank::ScopedLogRank(std::uint32_t rank) : before_(thread_rank) {
  thread_rank = rank;
}

ScopedLogRank::~ScopedLogRank() {
  thread_rank = before_;
}

namespace {

std::string as_file_name(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

std::string meaning_of(char letter, const Identity* identity) {
  switch (letter) {
    case 'h':
      return host_name();
    case 'p':
      return std::to_string(::getpid());
    case '%':
      return "%";
    case 'r':
      return identity == nullptr ? "%r" : std::to_string(identity->rank);
    case 'c':
      return identity == nullptr ? "%c" : as_file_name(identity->communicator);
    default:
      return {'%', letter};
  }
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) {
    return "unknown";
  }
  const std::string_view text = name.data();
  return std::string(text.substr(0, text.find('.')));
}

std::string expand_path(std::string_view pattern, const Identity* identity) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%' && i + 1 < pattern.size()) {
      path += meaning_of(pattern[++i], identity);
    } else {
      path += pattern[i];
    }
  }
  return path;
}

}  // namespace spillway::observe
