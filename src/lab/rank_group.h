// SPDX-License-Identifier: Apache-2.0
//
// The commands of a lab from their start to their end: hands on their output line by line, and when
// one fails or somebody asks for the end, sees to it that all end.
//
//   running     until all have ended
//   grace       one failed: the others have `grace` to end by themselves
//   asked       all that are left got SIGTERM (or the signal that asked for the end), also when
//               `limit` is over before one failed
//   killed      kKillAfter later, or at a second request, they get SIGKILL
//
// A command that keeps the terminal gets Ctrl-C from there and may live on.
//
// One thread, which must have blocked end_signals() and SIGCHLD before the first start(). In a
// process namespace's first process it also reaps what lost its parent.
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
  int interrupted_by = 0;       // a signal that asked for the end; 0: none did
  // The rank that failed before anything asked for an end: what failed later may be its doing.
  std::optional<std::size_t> first_failed;
  bool over_limit = false;  // they were ended because their time was over
  base::Duration cpu;       // of all that was reaped, with what it reaped itself
};

class RankGroup {
 public:
  // `limit` of 0: they may run for as long as they like.
  RankGroup(OutputFds output, base::Duration grace, base::Duration limit = {})
      : output_(output), grace_(grace), limit_(limit) {}
  ~RankGroup();  // kills what is left
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  base::Status start(const RankLaunch& launch);

  // Until all have ended and, where `stays`, until a signal asks for the end. Something to read
  // from `stop_fd` (-1: none) ends everything too.
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
  base::Instant deadline_;  // of the phase, where that is timed
  int interrupted_by_ = 0;
  std::optional<std::size_t> first_failed_;
  bool over_limit_ = false;
  base::Duration cpu_;
};

// Those that end a lab: SIGINT, SIGTERM, SIGHUP.
sigset_t end_signals();

// Blocks them and SIGCHLD in the calling thread and those it makes, for as long as it lives.
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
