// SPDX-License-Identifier: Apache-2.0
//
// The processes of a lab's ranks. A RankGroup starts one command per rank, forwards their output
// line by line, and makes sure that all of them end when one fails or when the user ends the lab.
//
//   running      until all have ended
//   grace        one failed; the others have `grace` to end by themselves
//   terminating  the remaining ones got SIGTERM, or the signal that requested the end; also if
//                `limit` expires before one failed
//   killed       kKillAfter later, or at a second request, they get SIGKILL
//
// A command that keeps the terminal gets Ctrl-C from there and may survive it.
//
// One thread, which must block end_signals() and SIGCHLD before the first start(). As the first
// process of a process namespace it also reaps orphans.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "net/system_call.h"

namespace spillway::lab {

// ------------------------------------------------------------------ output

// Blocks until everything is written. If the reader is gone, the rest is lost and the caller
// continues.
void write_all(int fd, std::string_view text);

// Puts a prefix before every line of a stream that arrives in pieces. It returns only whole lines,
// so that several streams written to one file do not mix within a line. Lines longer than kMaxLine
// are split, so that memory stays bounded.
class LinePrefixer {
 public:
  static constexpr std::size_t kMaxLine = 16384;

  // An empty prefix changes nothing, but lines are still returned whole.
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // The lines that `bytes` completes.
  std::string feed(std::string_view bytes);
  // The unfinished last line of a stream that has ended.
  std::string finish();

 private:
  std::string prefix_;
  std::string partial_;
};

// ------------------------------------------------------------------ one rank

// A command on one host of a lab. It runs in a process group of its own, in the host's network
// namespace, without input and with its output on pipes.
struct RankLaunch {
  std::string host;  // for messages
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "KEY=value"
  int network_namespace = -1;            // -1: that of the caller
  bool own_terminal = false;             // keeps the caller's input, output and process group
};

struct RankProcess {
  pid_t pid = -1;
  net::UniqueFd out;  // non-blocking read ends; invalid if the command keeps the terminal
  net::UniqueFd err;
};

// Returns when the command runs, or with the reason why it cannot. The process dies with the
// calling thread.
base::Result<RankProcess> start_rank(const RankLaunch& launch);

// As in a shell: the exit code, or 128 + the signal's number.
int exit_code_of(int wait_status);

// ------------------------------------------------------------------ all ranks

inline constexpr base::Duration kKillAfter = base::seconds(3);

struct OutputFds {
  int out = 1;
  int err = 2;
  bool prefix = true;  // "[3] " before every line of rank 3
};

struct GroupOutcome {
  std::vector<int> exit_codes;  // in the order of start()
  int interrupted_by = 0;       // the signal that requested the end; 0: none
  // The rank that failed before an end was requested. Later failures may be its consequences.
  std::optional<std::size_t> first_failed;
  bool over_limit = false;  // they were ended because the limit expired
  base::Duration cpu;       // of all reaped processes, with what those reaped themselves
};

class RankGroup {
 public:
  // `limit` of 0: no limit.
  RankGroup(OutputFds output, base::Duration grace, base::Duration limit = {})
      : output_(output), grace_(grace), limit_(limit) {}
  ~RankGroup();  // kills the ranks that are left
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  base::Status start(const RankLaunch& launch);

  // Runs until all have ended and, if `stays`, until a signal requests the end. Everything also
  // ends when `stop_fd` (-1: none) becomes readable.
  GroupOutcome run(int stop_fd, bool stays);

 private:
  enum class Phase : std::uint8_t { kRunning, kGrace, kTerminating, kKilled };
  struct Stream {
    net::UniqueFd source;
    int sink = -1;
    LinePrefixer lines;
  };
  struct Rank {
    RankLaunch launch;
    pid_t pid = -1;
    std::optional<int> exit_code;
  };

  bool all_ended() const;
  bool shares_terminal() const;
  bool is_timed() const;
  int wait_milliseconds() const;
  void take_signals(int signal_fd);
  void reap();
  void note_end(Rank& rank, int wait_status);
  void request_end(int signal_number);
  void send_all(int signal_number);
  void next_phase_if_due();
  void end_at_limit();
  void set_deadline(base::Duration from_now);
  void pump(Stream& stream);
  void drain();

  OutputFds output_;
  base::Duration grace_;
  base::Duration limit_;
  std::vector<Rank> ranks_;
  std::vector<Stream> streams_;
  Phase phase_ = Phase::kRunning;
  base::Instant deadline_;  // of the phase, if that is timed
  int interrupted_by_ = 0;
  std::optional<std::size_t> first_failed_;
  bool over_limit_ = false;
  base::Duration cpu_;
};

// The signals that end a lab: SIGINT, SIGTERM, SIGHUP.
sigset_t end_signals();

// Blocks them, SIGCHLD and SIGPIPE in the calling thread and those it starts, while it lives.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace spillway::lab
