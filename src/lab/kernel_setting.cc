// SPDX-License-Identifier: Apache-2.0
#include "lab/kernel_setting.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "net/system_error.h"
#include "net/unique_fd.h"

namespace spillway::lab {

base::Status write_setting(const std::string& path, std::string_view value) {
  const net::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid() ||
      ::write(file.get(), value.data(), value.size()) != static_cast<ssize_t>(value.size())) {
    return net::system_error(fmt::format("write '{}' to {}", value, path), errno);
  }
  return {};
}

}  // namespace spillway::lab
