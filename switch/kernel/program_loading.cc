// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/program_loading.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/bpf.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <optional>

#include "net/system_call.h"

namespace spillway::kernel {

namespace {

constexpr net::KernelRelease kOldest{5, 15};
constexpr net::KernelRelease kHasFragments{5, 18};
constexpr std::size_t kLongestText = 1 << 16;  // only the end matters

std::string* current_text = nullptr;

int keep(enum libbpf_print_level level, const char* format, va_list arguments) {
  if (current_text == nullptr || level == LIBBPF_DEBUG) {
    return 0;
  }
  // The verifier's whole log comes in one piece, and only its end matters.
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, arguments);
  if (length > 0) {
    std::string piece(static_cast<std::size_t>(length) + 1, '\0');
    std::vsnprintf(piece.data(), piece.size(), format, again);
    piece.pop_back();
    current_text->append(piece);
  }
  va_end(again);
  if (current_text->size() > kLongestText) {
    current_text->erase(0, current_text->size() - kLongestText);
  }
  return length;
}

// The verifier's last lines before its instruction counts: the refused instruction, and why.
std::string end_of_log(std::string_view log) {
  constexpr int kLines = 4;
  log = log.substr(0, log.rfind("\nprocessed "));
  log = log.substr(0, log.find_last_not_of('\n') + 1);
  std::size_t begin = log.size();
  for (int line = 0; line < kLines && begin != 0; ++line) {
    const std::size_t end_before = log.rfind('\n', begin - 1);
    begin = end_before == std::string_view::npos ? 0 : end_before;
  }
  return std::string(log.substr(begin == 0 ? 0 : begin + 1));
}

}  // namespace

base::Status check_kernel() {
  const std::optional<net::KernelRelease> release = net::kernel_release();
  if (release && *release >= kOldest) {
    return {};
  }
  return {base::StatusCode::kUnavailable,
          fmt::format("eBPF programs of Spillway need Linux {}.{} or newer{}; the switch in user "
                      "space (`spillway switch run`) runs on this one",
                      kOldest.major, kOldest.minor,
                      release ? fmt::format(", this is {}.{}", release->major, release->minor)
                              : std::string())};
}

LoadLog::LoadLog() {
  current_text = &text_;
  libbpf_set_print(keep);
}

LoadLog::~LoadLog() {
  current_text = nullptr;
}

base::Status load_error(std::string_view attempt, int error, const LoadLog& log) {
  if (error == EPERM) {
    return net::system_error(attempt, error,
                             "it takes CAP_BPF and CAP_NET_ADMIN, as root has them; not inside a "
                             "user namespace");
  }
  if (log.text().find("BEGIN PROG LOAD LOG") != std::string::npos) {
    return {base::StatusCode::kUnavailable,
            fmt::format("cannot {}: this kernel's verifier refuses the program, please report it "
                        "with `uname -r`. Its last words:\n{}",
                        attempt, end_of_log(log.text()))};
  }
  return net::system_error(attempt, error, end_of_log(log.text()));
}

bool allow_fragments(bpf_program* program) {
  return net::kernel_release() >= kHasFragments &&
         ::bpf_program__set_flags(program, ::bpf_program__flags(program) | BPF_F_XDP_HAS_FRAGS) ==
             0;
}

namespace {

constexpr const char* kMountPoint = "/sys/fs/bpf";

// How a kind is called in messages and commands, and as a folder.
struct KindNames {
  const char* what;
  const char* command;
  const char* option;
  const char* folder;
};

KindNames names_of(PinKind kind) {
  return kind == PinKind::kSwitch ? KindNames{"switch", "switch", "--name", "switches"}
                                  : KindNames{"fix-up", "fixup", "--interface", "fixups"};
}

std::filesystem::path root(PinKind kind) {
  return std::filesystem::path(kMountPoint) / "spillway" / names_of(kind).folder;
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
    const KindNames names = names_of(kind);
    return base::Status(base::StatusCode::kUnavailable,
                        fmt::format("a {0} named {1} is attached; `spillway {2} detach {3} {1}` "
                                    "detaches it",
                                    names.what, name, names.command, names.option));
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
    const KindNames names = names_of(kind);
    const std::vector<std::string> others = list(kind);
    return base::Status(
        base::StatusCode::kUnavailable,
        fmt::format("no {} named {} is attached{}", names.what, name,
                    others.empty()
                        ? fmt::format("; `spillway {} attach` attaches one", names.command)
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
