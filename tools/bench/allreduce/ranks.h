// SPDX-License-Identifier: Apache-2.0
//
// Processes that `bench allreduce` starts: helpers that exchange lines with it, and the ranks of a
// job on loopback.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "net/address.h"
#include "net/system_call.h"

namespace spillway::bench {

// ------------------------------------------------------------------ a child process

// A child process that exchanges lines with us: its input and output lead here, its errors go where
// ours go. It does not outlive the thread that started it, nor this object, whose destructor closes
// its input, waits a moment and then kills it.
//
// Blocking; throws CommandError. One thread. Limit: an answer has at most kMaxAnswerBytes.

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

// ------------------------------------------------------------------ the ranks of a job

// Runs this command once more for every rank of a job on loopback, and waits until all have ended.
// Also starts parameter servers (`spillway server`) if requested.
//
// When a rank fails, the others have kRankGrace to notice and report it, then they are killed;
// SIGINT, SIGTERM and SIGHUP are passed on. Ranks do not outlive this process, however it ends.
// They share its terminal: rank 0 prints.
//
// Throws CommandError if ranks cannot be started. Call from a process with one thread.

inline constexpr base::Duration kRankGrace = base::milliseconds(2500);

struct LocalJob {
  unsigned ranks = 2;
  unsigned servers = 0;
};

// `mark` is appended to the command line, so that the command knows it is a rank. Returns the exit
// code: 0 if all ended well, 1 if one failed, 128 plus the number of a signal that asked for the
// end.
int run_ranks_here(const LocalJob& job, const std::string& mark);

}  // namespace spillway::bench
