// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/program_loading.h"

#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/bpf.h>

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
std::string last_words(std::string_view log) {
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
                        attempt, last_words(log.text()))};
  }
  return net::system_error(attempt, error, last_words(log.text()));
}

bool allow_fragments(bpf_program* program) {
  return net::kernel_release() >= kHasFragments &&
         ::bpf_program__set_flags(program, ::bpf_program__flags(program) | BPF_F_XDP_HAS_FRAGS) ==
             0;
}

}  // namespace spillway::kernel
