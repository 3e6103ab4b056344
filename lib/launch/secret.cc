// SPDX-License-Identifier: Apache-2.0
#include "launch/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/own_file.h"
#include "net/system_call.h"
#include "wire/key.h"

namespace spillway::launch {
namespace {

base::Result<Secret> checked(Secret secret, std::string_view whose) {
  const std::size_t size = secret.bytes().size();
  if (size < kMinSecretBytes || size > kMaxSecretBytes) {
    return base::invalid_argument(
        fmt::format("{} has {} bytes: it must have {} to {}", whose,
                    size > kMaxSecretBytes ? "too many" : fmt::to_string(size), kMinSecretBytes,
                    kMaxSecretBytes));
  }
  return secret;
}

std::optional<int> descriptor_in(std::string_view text) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number >= 0 ? std::optional(number) : std::nullopt;
}

// A buffer that is wiped when it dies.
struct Buffer {
  std::array<std::uint8_t, kMaxSecretBytes + 2> bytes{};
  std::size_t size = 0;

  ~Buffer() { wire::wipe(bytes); }
  bool is_full() const { return size == bytes.size(); }
  Secret trimmed() const {
    std::size_t end = size;
    while (end > 0 && (bytes[end - 1] == '\n' || bytes[end - 1] == '\r')) {
      --end;
    }
    return Secret(base::ByteView(bytes).first(end));
  }
};

// Stops when the buffer is full, since the secret is then too long. A regular file is read from its
// beginning, wherever another reader left the offset.
base::Result<Secret> read_all(int fd, bool is_file, const std::string& where) {
  const base::MonotonicClock clock;
  const base::Instant end = clock.now() + kSecretPatience;
  Buffer buffer;
  while (!buffer.is_full()) {
    pollfd waiting{fd, POLLIN, 0};
    const std::int64_t left_ms = std::max<std::int64_t>((end - clock.now()).count() / 1'000'000, 0);
    if (!is_file && ::poll(&waiting, 1, static_cast<int>(left_ms)) == 0) {
      return base::Status(base::StatusCode::kTimedOut,
                          fmt::format("SPILLWAY_SECRET_FILE is {}, whose writer has not closed it: "
                                      "close it once the secret is written",
                                      where));
    }
    std::uint8_t* const to = buffer.bytes.data() + buffer.size;
    const std::size_t room = buffer.bytes.size() - buffer.size;
    const ssize_t got =
        is_file ? ::pread(fd, to, room, static_cast<off_t>(buffer.size)) : ::read(fd, to, room);
    if (got < 0 && errno != EINTR && errno != EAGAIN) {
      return net::system_error(fmt::format("read the secret from {}", where), errno);
    }
    if (got == 0) {
      break;
    }
    buffer.size += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  }
  return checked(buffer.trimmed(), fmt::format("the secret in {}", where));
}

// Secrets read from pipes, which are empty afterwards.
class PipeSecrets {
 public:
  static PipeSecrets& of_process() {
    static PipeSecrets secrets;
    return secrets;
  }

  base::Result<Secret> read(int fd, const struct stat& file, const std::string& where) {
    const std::lock_guard lock(mutex_);
    const auto key = std::pair(file.st_dev, file.st_ino);
    const auto known = secrets_.find(key);
    if (known != secrets_.end()) {
      return known->second;
    }
    base::Result<Secret> secret = read_all(fd, /*is_file=*/false, where);
    if (secret.ok()) {
      secrets_.emplace(key, *secret);
    }
    return secret;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<dev_t, ino_t>, Secret> secrets_;
};

base::Result<Secret> read_open(int fd, const struct stat& file, const std::string& where) {
  if (base::Status status = base::check_is_own(file, where); !status.ok()) {
    return base::Status(status.code(), "SPILLWAY_SECRET_FILE: " + status.message());
  }
  return S_ISREG(file.st_mode) ? read_all(fd, /*is_file=*/true, where)
                               : PipeSecrets::of_process().read(fd, file, where);
}

base::Result<Secret> read_descriptor(int fd) {
  const std::string where = fmt::format("descriptor {}", fd);
  struct stat file {};
  if (::fstat(fd, &file) != 0) {
    return net::system_error(fmt::format("read the secret from {}", where), errno,
                             "SPILLWAY_SECRET_FILE names it: start the process with it open");
  }
  return read_open(fd, file, where);
}

base::Result<Secret> read_path(const std::string& path) {
  // Nonblocking: read_all() waits for a named pipe's writer, with a limit.
  const net::UniqueFd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat file {};
  if (!opened.valid() || ::fstat(opened.get(), &file) != 0) {
    return net::system_error(fmt::format("read the secret from {}", path), errno,
                             "SPILLWAY_SECRET_FILE names it");
  }
  return read_open(opened.get(), file, path);
}

}  // namespace

Secret& Secret::operator=(const Secret& other) {
  return *this = Secret(other);
}

Secret& Secret::operator=(Secret&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Secret::wipe() {
  wire::wipe(bytes_);
  bytes_.clear();
}

base::Result<Secret> secret_from(const base::Environment& environment, const Secret& given) {
  if (!given.empty()) {
    return checked(given, "the job's secret");
  }
  base::Result<std::string> set = environment.checked_text("SPILLWAY_SECRET");
  if (!set.ok()) {
    return set.status();
  }
  std::string text = std::move(set).value();
  const std::string file = environment.text("SPILLWAY_SECRET_FILE");
  if (!text.empty() && !file.empty()) {
    return base::invalid_argument(
        "SPILLWAY_SECRET and SPILLWAY_SECRET_FILE are both set: set one of them, the file rather");
  }
  if (!text.empty()) {
    Secret secret(text);
    wire::wipe({reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
    return checked(std::move(secret), "SPILLWAY_SECRET");
  }
  if (file.empty()) {
    return Secret();
  }
  const std::optional<int> descriptor = descriptor_in(file);
  return descriptor ? read_descriptor(*descriptor) : read_path(file);
}

}  // namespace spillway::launch
