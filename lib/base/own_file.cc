// SPDX-License-Identifier: Apache-2.0
#include "base/own_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace spillway::base {
namespace {

constexpr mode_t kOthersUse = S_IRWXG | S_IRWXO;
constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr mode_t kForEveryone = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;
constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::size_t kMaxFolderBytes = 1024;  // on the stack of a signal handler
constexpr int kOpenAttempts = 8;  // attempts for a file that others create and remove meanwhile

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

Status failed_to(std::string_view verb, const std::string& path, int error) {
  return {StatusCode::kUnavailable,
          fmt::format("cannot {} {}: {}", verb, path, std::generic_category().message(error))};
}

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno != EINTR) {
      return false;
    }
    content.remove_prefix(written < 0 ? 0 : static_cast<std::size_t>(written));
  }
  return true;
}

bool is_ours(const struct stat& file) {
  return file.st_uid == ::geteuid() || file.st_uid == 0;
}

Status check_folder(const std::string& path) {
  struct stat folder {};
  if (::lstat(path.c_str(), &folder) != 0) {
    return failed_to("look at", path, errno);
  }
  if (!S_ISDIR(folder.st_mode) || folder.st_uid != ::geteuid() ||
      (folder.st_mode & kOthersWrite) != 0) {
    return {StatusCode::kUnavailable,
            fmt::format("{} does not belong to this user alone: it must be a folder that nobody "
                        "else may write to; remove it, or chmod 700 it if it is yours",
                        path)};
  }
  return {};
}

// Stats the folder in which the path's last component is looked up. Async-signal-safe.
bool look_at_folder_of(std::string_view path, struct stat& folder) noexcept {
  const std::size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? "." : path.substr(0, slash + 1);
  std::array<char, kMaxFolderBytes> text;
  if (name.size() >= text.size()) {
    return false;
  }
  std::copy(name.begin(), name.end(), text.begin());
  text[name.size()] = '\0';
  return ::stat(text.data(), &folder) == 0;
}

// False if another user may have planted the entry. Only root creates devices, and the folder's
// owner can do as much without a trap.
bool is_trusted(const char* path, const struct stat& entry) noexcept {
  if (is_ours(entry) || S_ISCHR(entry.st_mode) || S_ISBLK(entry.st_mode)) {
    return true;
  }
  struct stat folder {};
  return look_at_folder_of(path, folder) && folder.st_uid == entry.st_uid;
}

bool has_other_names(const struct stat& entry) noexcept {
  return S_ISREG(entry.st_mode) && entry.st_nlink > 1;
}

int refuse(int fd, int error) noexcept {
  if (fd >= 0) {
    ::close(fd);
  }
  errno = error;
  return -1;
}

// Checks the descriptor, not the name, so that the checked file is the one that is used.
int checked(const char* path, int fd) noexcept {
  struct stat entry {};
  if (fd < 0 || ::fstat(fd, &entry) != 0) {
    return refuse(fd, errno);
  }
  return is_trusted(path, entry) && !has_other_names(entry) ? fd : refuse(fd, EPERM);
}

bool let_wait(int fd) noexcept {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

int open_existing(const char* path, int flags, mode_t mode) noexcept {
  // Without O_NONBLOCK another user's named pipe would block this process.
  const int found = checked(path, ::open(path, flags | O_NOFOLLOW | O_NONBLOCK));
  if (found >= 0) {
    return let_wait(found) ? found : refuse(found, errno);
  }
  const int error = errno;
  const bool is_link = error == ELOOP;
  if (!is_link && error != ENXIO) {  // ENXIO: a pipe without a reader
    return refuse(-1, error);
  }
  struct stat entry {};
  if (::lstat(path, &entry) != 0) {
    return -1;
  }
  if (!is_trusted(path, entry)) {
    return refuse(-1, EPERM);
  }
  return is_link ? ::open(path, flags | O_CREAT, mode)
                 : checked(path, ::open(path, flags | O_NOFOLLOW));
}

int open_or_make(const char* path, int flags, mode_t mode) noexcept {
  int fd = -1;
  for (int i = 0; i < kOpenAttempts; ++i) {
    fd = ::open(path, flags | O_CREAT | O_EXCL, mode);
    if (fd >= 0 || errno != EEXIST) {
      return fd;
    }
    fd = open_existing(path, flags, mode);
    if (fd >= 0 || errno != ENOENT) {
      return fd;
    }
  }
  return fd;
}

bool empty_file(int fd) noexcept {
  struct stat entry {};
  return ::fstat(fd, &entry) == 0 && (!S_ISREG(entry.st_mode) || ::ftruncate(fd, 0) == 0);
}

// Why open_own_file() refuses this path; empty if the kernel refused it.
std::string refusal_of(const std::string& path) {
  struct stat entry {};
  if (::lstat(path.c_str(), &entry) != 0) {
    return "";
  }
  if (!is_trusted(path.c_str(), entry)) {
    return fmt::format(
        "it belongs to user {}, who may have put it there to get what is written; "
        "remove it, or name another",
        entry.st_uid);
  }
  return has_other_names(entry) ? "the file has other names (hard links); remove this one, or name "
                                  "another"
                                : "";
}

}  // namespace

int open_own_file(const char* path, Opening opening, Readers readers) noexcept {
  const int flags = O_WRONLY | O_CLOEXEC | O_NOCTTY | (opening == Opening::kAppend ? O_APPEND : 0);
  const mode_t mode = readers == Readers::kEveryone ? kForEveryone : S_IRUSR | S_IWUSR;
  const int fd = open_or_make(path, flags, mode);
  if (fd >= 0 && opening == Opening::kTruncate && !empty_file(fd)) {
    return refuse(fd, errno);
  }
  return fd;
}

Status not_opened(const std::string& path, int error, std::string_view hint) {
  const std::string refusal = error == EPERM ? refusal_of(path) : "";
  const std::string reason = refusal.empty() ? std::generic_category().message(error) : refusal;
  return {StatusCode::kUnavailable,
          fmt::format("cannot write {}: {}{}{}", path, reason, hint.empty() ? "" : "; ", hint)};
}

Status write_own_file(const std::string& path, std::string_view content, Readers readers) {
  Descriptor fd(open_own_file(path.c_str(), Opening::kTruncate, readers));
  if (!fd.valid()) {
    return not_opened(path, errno);
  }
  // Some file systems report a full disk only on close.
  return write_all(fd.get(), content) && fd.close() == 0 ? Status()
                                                         : failed_to("write", path, errno);
}

Status replace_file(const std::string& path, std::string_view content, Readers readers) {
  std::string part = path + ".XXXXXX";
  const Descriptor fd(::mkostemp(part.data(), O_CLOEXEC));
  if (!fd.valid()) {
    return failed_to("write", path, errno);
  }
  const bool is_open_to_all = readers == Readers::kEveryone;
  if ((is_open_to_all && ::fchmod(fd.get(), kForEveryone) != 0) || !write_all(fd.get(), content) ||
      ::rename(part.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(part.c_str());
    return failed_to("write", path, error);
  }
  return {};
}

Status check_is_own(const struct stat& file, const std::string& where) {
  if (!S_ISREG(file.st_mode) || file.st_nlink == 0) {
    return {};
  }
  if (!is_ours(file)) {
    return invalid_argument(
        fmt::format("{} belongs to user {}, and this process runs as user {}: it must belong to "
                    "the same user or to root",
                    where, file.st_uid, ::geteuid()));
  }
  if ((file.st_mode & kOthersUse) != 0) {
    return invalid_argument(
        fmt::format("{} may be used by others than its owner (mode {:o}): chmod 600 it", where,
                    file.st_mode & 07777U));
  }
  return {};
}

Result<std::string> read_own_file(const std::string& path, std::size_t limit) {
  // Without O_NONBLOCK a named pipe in the file's place would block this process.
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat file {};
  if (!fd.valid() || ::fstat(fd.get(), &file) != 0) {
    return failed_to("read", path, errno);
  }
  if (!S_ISREG(file.st_mode)) {
    return invalid_argument(fmt::format("{} is not a regular file", path));
  }
  if (Status status = check_is_own(file, path); !status.ok()) {
    return status;
  }
  std::string content;
  std::array<char, kReadBytes> buffer;
  while (content.size() <= limit) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno != EINTR) {
      return failed_to("read", path, errno);
    }
    if (got == 0) {
      return content;
    }
    content.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  return Status(StatusCode::kLimitExceeded, fmt::format("{} has more than {} bytes", path, limit));
}

Status prepare_own_folder(const std::string& path) {
  std::error_code ignored;  // mkdir() reports what is still missing
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) {
    std::filesystem::create_directories(parent, ignored);
  }
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return failed_to("make", path, errno);
  }
  return check_folder(path);
}

std::string runtime_folder(const Environment& environment) {
  if (::geteuid() == 0 && ::access("/run", W_OK) == 0) {
    return "/run/spillway";
  }
  const auto runtime = environment.get("XDG_RUNTIME_DIR");
  if (runtime && ::access(runtime->c_str(), W_OK) == 0) {
    return *runtime + "/spillway";
  }
  return fmt::format("/tmp/spillway-{}", ::geteuid());
}

}  // namespace spillway::base
