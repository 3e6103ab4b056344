// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/pins.h"

#include <bpf/bpf.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>

#include "net/system_call.h"

namespace spillway::kernel {
namespace {

constexpr const char* kMountPoint = "/sys/fs/bpf";

// How a kind is called in messages and commands, and as a folder.
struct Words {
  const char* what;
  const char* command;
  const char* option;
  const char* folder;
};

Words words_of(PinKind kind) {
  return kind == PinKind::kSwitch ? Words{"switch", "switch", "--name", "switches"}
                                  : Words{"fix-up", "fixup", "--interface", "fixups"};
}

std::filesystem::path root(PinKind kind) {
  return std::filesystem::path(kMountPoint) / "spillway" / words_of(kind).folder;
}

base::Status check_name(const std::string& name) {
  const bool is_word =
      !name.empty() && name.size() <= 32 && std::ranges::all_of(name, [&name](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '_' || (c == '.' && name[0] != '.');
      });
  return is_word ? base::Status()
                 : base::invalid_argument(fmt::format(
                       "'{}' is no name to pin: letters, digits, ., - and _, at most 32", name));
}

bool is_mounted() {
  struct statfs status = {};
  return ::statfs(kMountPoint, &status) == 0 && status.f_type == BPF_FS_MAGIC;
}

base::Status mount_file_system() {
  if (is_mounted() || ::mount("bpf", kMountPoint, "bpf", 0, "mode=0700") == 0) {
    return {};
  }
  return net::system_error(fmt::format("mount the BPF file system at {}", kMountPoint), errno,
                           "mount it with `mount -t bpf bpf /sys/fs/bpf`");
}

}  // namespace

base::Result<PinFolder> PinFolder::make(PinKind kind, const std::string& name) {
  if (base::Status status = check_name(name); !status.ok()) {
    return status;
  }
  if (base::Status status = mount_file_system(); !status.ok()) {
    return status;
  }
  std::error_code error;
  std::filesystem::create_directories(root(kind), error);
  if (!error && !std::filesystem::create_directory(root(kind) / name, error) && !error) {
    const Words words = words_of(kind);
    return base::Status(base::StatusCode::kUnavailable,
                        fmt::format("a {0} named {1} is attached; `spillway {2} detach {3} {1}` "
                                    "detaches it",
                                    words.what, name, words.command, words.option));
  }
  if (error) {
    return net::system_error(fmt::format("make a folder in {}", kMountPoint), error.value());
  }
  return PinFolder(root(kind) / name);
}

base::Result<PinFolder> PinFolder::open(PinKind kind, const std::string& name) {
  if (base::Status status = check_name(name); !status.ok()) {
    return status;
  }
  std::error_code error;
  if (!std::filesystem::is_directory(root(kind) / name, error)) {
    const Words words = words_of(kind);
    const std::vector<std::string> others = list(kind);
    return base::Status(
        base::StatusCode::kUnavailable,
        fmt::format("no {} named {} is attached{}", words.what, name,
                    others.empty()
                        ? fmt::format("; `spillway {} attach` attaches one", words.command)
                        : fmt::format("; attached are {}", fmt::join(others, ", "))));
  }
  return PinFolder(root(kind) / name);
}

std::vector<std::string> PinFolder::list(PinKind kind) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root(kind), error)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

base::Status PinFolder::pin(int fd, std::string_view name) const {
  return ::bpf_obj_pin(fd, (path_ / name).c_str()) == 0
             ? base::Status()
             : net::system_error(fmt::format("pin {}", (path_ / name).string()), errno);
}

base::Result<net::UniqueFd> PinFolder::get(std::string_view name) const {
  net::UniqueFd fd(::bpf_obj_get((path_ / name).c_str()));
  return fd.valid() ? base::Result<net::UniqueFd>(std::move(fd))
                    : net::system_error(fmt::format("open {}", (path_ / name).string()), errno);
}

void PinFolder::remove() const {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace spillway::kernel
