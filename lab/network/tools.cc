// SPDX-License-Identifier: Apache-2.0
#include "lab/network/tools.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "net/system_call.h"

namespace spillway::lab {

base::Status write_proc_file(const std::string& path, std::string_view value) {
  const net::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid() ||
      ::write(file.get(), value.data(), value.size()) != static_cast<ssize_t>(value.size())) {
    return net::system_error(fmt::format("write '{}' to {}", value, path), errno);
  }
  return {};
}

namespace {

constexpr std::size_t kMaxMessage = 2000;

// Files in memory, not pipes: the tool may read slowly or print much, and nothing blocks.
base::Result<net::UniqueFd> memory_file(std::string_view text) {
  net::UniqueFd file(::memfd_create("lab", MFD_CLOEXEC));
  if (!file.valid() ||
      ::pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return net::system_error("make a file in memory", errno);
  }
  return file;
}

std::string text_of(int file) {
  std::string text(kMaxMessage, '\0');
  const ssize_t size = ::pread(file, text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return text;
}

[[noreturn]] void become(const std::string& path, const std::vector<std::string>& arguments,
                         int input, int output, std::span<const int> kept_fds) {
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  for (const int fd : kept_fds) {
    ::fcntl(fd, F_SETFD, 0);
  }
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execv(path.c_str(), argv.data());
  ::_exit(127);
}

}  // namespace

base::Result<std::string> find_tool(std::string_view name, std::string_view package) {
  const char* path = std::getenv("PATH");
  std::string folders = fmt::format("{}:/usr/sbin:/sbin:/usr/bin:/bin", path ? path : "");
  for (std::string_view rest = folders; !rest.empty();) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    std::string candidate = fmt::format("{}/{}", rest.substr(0, colon), name);
    if (colon > 0 && ::access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return base::Status(
      base::StatusCode::kUnavailable,
      fmt::format("'{}' was not found: install the Debian package {}", name, package));
}

base::Status run_tool(const std::string& path, const std::vector<std::string>& arguments,
                      std::string_view input, std::span<const int> kept_fds) {
  const base::Result<net::UniqueFd> in = memory_file(input);
  const base::Result<net::UniqueFd> out = memory_file({});
  if (!in.ok() || !out.ok()) {
    return in.ok() ? out.status() : in.status();
  }
  const pid_t child = ::fork();
  if (child == 0) {
    become(path, arguments, in->get(), out->get(), kept_fds);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) {
    return net::system_error(fmt::format("run {}", path), errno);
  }
  if (status != 0) {
    return {base::StatusCode::kUnavailable,
            fmt::format("{} {} failed: {}", path, fmt::join(arguments, " "), text_of(out->get()))};
  }
  return {};
}

}  // namespace spillway::lab
