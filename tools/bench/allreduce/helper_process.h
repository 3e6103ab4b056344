// SPDX-License-Identifier: Apache-2.0
//
// A child process that exchanges lines with us: its input and output lead here, its errors go where
// ours go. It does not outlive the thread that started it, nor this object, whose destructor closes
// its input, waits a moment and then kills it.
//
// Blocking; throws CommandError. One thread. Limit: an answer has at most kMaxAnswerBytes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "net/address.h"
#include "net/system_call.h"

namespace spillway::bench {

// Returns a free TCP port at `address`, for a program that cannot be handed a socket. Another
// process may take the port first; the program then reports that.
std::uint16_t free_tcp_port(const net::SocketAddress& address);

struct HelperCommand {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "KEY=value"
  int death_signal = 9;                  // sent to it when this process dies
};

class HelperProcess {
 public:
  static constexpr std::size_t kMaxAnswerBytes = std::size_t{1} << 24;

  explicit HelperProcess(const HelperCommand& command);
  ~HelperProcess();
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  void send_line(const std::string& line);
  // Returns a line without its end; empty once the program has closed its output.
  std::string read_line();

 private:
  bool has_ended_within(int milliseconds) const;

  std::string name_;
  pid_t pid_ = -1;
  net::UniqueFd stream_;  // its input and output
  std::string unread_;
};

}  // namespace spillway::bench
