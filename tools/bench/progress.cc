// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace spillway::bench {
namespace {

constexpr std::size_t kBarWidth = 24;

}  // namespace

Progress::Progress(std::size_t steps) : steps_(steps), shown_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (shown_) {
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
  }
}

void Progress::step(std::string_view what) {
  if (shown_) {
    const std::size_t filled = steps_ == 0 ? kBarWidth : kBarWidth * done_ / steps_;
    fmt::print(stderr, "\r\033[K[{:<{}}] {}", std::string(filled, '='), kBarWidth, what);
    std::fflush(stderr);
  }
  done_ = done_ < steps_ ? done_ + 1 : steps_;
}

}  // namespace spillway::bench
