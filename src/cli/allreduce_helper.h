// SPDX-License-Identifier: Apache-2.0
//
// A program that is talked to by lines: its input and output lead here, its errors go where
// ours go. It does not outlive the thread that started it, nor this object, which closes its input,
// waits a moment and then kills it.
//
// Blocking; throws CommandError. One thread. Limit: an answer has at most kMostAnswerBytes.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "net/unique_fd.h"

namespace spillway::cli {

struct HelperCommand {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "KEY=value"
  int death_signal = 9;                  // what it gets when this process dies
};

class HelperProcess {
 public:
  static constexpr std::size_t kMostAnswerBytes = std::size_t{1} << 24;

  explicit HelperProcess(const HelperCommand& command);
  ~HelperProcess();
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  void send_line(const std::string& line);
  // Without its end; empty when the program has closed its output.
  std::string read_line();

 private:
  bool has_ended_within(int milliseconds) const;

  std::string name_;
  pid_t pid_ = -1;
  net::UniqueFd stream_;  // its input and output
  std::string unread_;
};

}  // namespace spillway::cli
