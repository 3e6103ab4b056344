// SPDX-License-Identifier: Apache-2.0
#include "runtime/local_memory.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/rank_card.h"

namespace spillway::runtime {
namespace {

// Reads as much as there is; 0 for nothing more, -1 for an error.
ssize_t read_some(pid_t process, std::uint64_t address, std::size_t bytes, std::uint8_t* to) {
  const iovec local{to, bytes};
  const iovec remote{reinterpret_cast<void*>(address), bytes};
  return ::process_vm_readv(process, &local, 1, &remote, 1, 0);
}

// Containers may forbid the call whoever is asked.
bool kernel_allows() {
  const std::uint32_t there = 0x5350574C;
  std::uint32_t here = 0;
  const ssize_t got = read_some(::getpid(), reinterpret_cast<std::uintptr_t>(&there), sizeof(there),
                                reinterpret_cast<std::uint8_t*>(&here));
  return got == sizeof(there) && here == there;
}

std::string namespace_of(const char* kind) {
  std::error_code error;
  const std::filesystem::path link =
      std::filesystem::read_symlink(std::string("/proc/self/ns/") + kind, error);
  return error ? "" : link.string();
}

}  // namespace

std::string memory_domain() {
  if (!kernel_allows()) {
    return "";
  }
  // Fails where there is no Yama, and then is not needed.
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  return fmt::format("{}/{}/{}/{}", machine_name(), namespace_of("pid"), namespace_of("net"),
                     ::geteuid());
}

bool LocalMemory::read(std::uint16_t peer, std::uint64_t address, std::size_t bytes,
                       std::uint8_t* to) {
  while (bytes > 0 && !failure_) {
    const ssize_t got = read_some(*processes_[peer], address, bytes, to);
    if (got <= 0) {
      const int error = got < 0 ? errno : ESRCH;
      const std::string why = error == ESRCH
                                  ? fmt::format("rank {} is dead: its process is gone", peer)
                                  : fmt::format(
                                        "the memory of rank {} cannot be read ({}); set "
                                        "SPILLWAY_LOCAL_COPY=0 at every rank",
                                        peer, std::strerror(error));
      failure_ = {peer, {base::StatusCode::kPeerFailed, why}};
      break;
    }
    address += static_cast<std::uint64_t>(got);
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return bytes == 0;
}

}  // namespace spillway::runtime
