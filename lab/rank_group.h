// SPDX-License-Identifier: Apache-2.0
//
// The commands of a lab from start to end. Forwards their output line by line. When one fails, or
// when the end is requested, it makes sure that all of them end.
//
//   running     until all have ended
//   grace       one failed: the others have `grace` to end by themselves
//   asked       all that are left got SIGTERM (or the signal that requested the end); also when
//               `limit` expires before one failed
//   killed      kKillAfter later, or at a second request, they get SIGKILL
//
// A command that keeps the terminal gets Ctrl-C from there and may survive it.
//
// One thread, which must block end_signals() and SIGCHLD before the first start(). As the first
// process of a process namespace it also reaps orphans.
#pragma once

#include <signal.h>

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "lab/output.h"
#include "lab/rank_process.h"

namespace spillway::lab {

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
  enum class Phase : std::uint8_t { kRunning, kGrace, kAsked, kKilled };
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
  void ask_for_the_end(int signal_number);
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
