// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <utility>

#include "net/system_error.h"
#include "net/unique_fd.h"
#include "runtime/debug_log.h"
#include "runtime/signals_blocked.h"

namespace spillway::runtime {
namespace {

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      return false;
    }
    text.remove_prefix(written < 0 ? 0 : static_cast<std::size_t>(written));
  }
  return true;
}

std::thread start_thread(std::function<void()> work) {
  const SignalsBlocked blocked;
  return std::thread(std::move(work));
}

}  // namespace

base::Status replace_file(const std::string& path, const std::string& text) {
  // Not a name that a collector of *.prom would take.
  const std::string beside = fmt::format("{}.{}.tmp", path, ::getpid());
  const net::UniqueFd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return net::system_error(fmt::format("create {}", beside), errno);
  }
  if (!write_all(fd.get(), text) || ::rename(beside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(beside.c_str());
    return net::system_error(fmt::format("write {}", path), error);
  }
  return {};
}

MetricsFile::MetricsFile(std::string path, base::Duration period,
                         std::function<std::string()> render)
    : path_(std::move(path)),
      period_(period),
      render_(std::move(render)),
      thread_(start_thread([this] { run(); })) {}

MetricsFile::~MetricsFile() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void MetricsFile::run() {
  std::unique_lock lock(mutex_);
  const auto ends = [this] { return ends_; };
  do {
    lock.unlock();
    write();
    lock.lock();
  } while (!changed_.wait_for(lock, std::chrono::nanoseconds(period_.count()), ends));
  write();
}

void MetricsFile::write() {
  const base::Status status = replace_file(path_, render_());
  if (!status.ok() && !warned_) {
    log_warn("no metrics: {}: set SPILLWAY_METRICS_FILE to a path that can be written",
             status.message());
  }
  warned_ = !status.ok();
}

}  // namespace spillway::runtime
