// SPDX-License-Identifier: Apache-2.0
//
// Checks that this machine emulates a network on time, before anything is measured on it.
//
// A trial is a short lab whose ranks run the load at the end of this file: they send at their
// links' rates and compute. If the fabric is late, or if a host could not send nearly all of its
// load, time is slowed down by a factor of two (sim/scenario/scenario.h) and the trial starts anew.
//
// Two kinds of labs need no trial: the switch in the kernel does not know how late it is, and on
// loopback only Spillway's packets cross the fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/units.h"
#include "lab/launcher.h"

namespace spillway::lab {

inline constexpr double kMaxDilation = 64;

// True if the fabric will run in user space, in namespaces.
base::Result<bool> can_be_late(const LabOptions& options);

// If a host sent less than this share, the trial does not show that the fabric bears the load.
inline constexpr double kLeastShareSent = 0.9;

// The dilation to use after a trial at `dilation` had this pace, and every host sent at least
// `share_sent` of its load. Returns the same value if the trial was on time with room to spare, and
// null if no dilation helps.
std::optional<double> next_dilation(const Pace& pace, double share_sent, double dilation);

// The factor by which to slow down a network in which a run was late, so that one restart is
// enough: a power of two up to kMaxSlowdown, and at least 4 if frames were lost. The lateness seen
// would then be within the limit, and it also falls with the load.
inline constexpr double kMaxSlowdown = 8;
double slowdown_after(const Pace& late);

// Tells the user which option makes a run such as this late one be on time.
std::string remedy_after(const scenario::Scenario& scenario, const Pace& late);

// A run that has ended, as its starter knows it.
struct EndedRun {
  bool was_late = false;       // its commands succeeded, but the fabric fell behind
  bool rate_is_given = false;  // the user chose the links' rate
  bool allows_late = false;    // the user accepts late runs
  bool could_be_tried = true;  // as can_be_late(): the fabric ran in user space, in namespaces
  bool is_staged = false;      // its ranks belong to a staged world, which they enter only once
  bool can_be_slower = true;   // it is the first run, and its network can be dilated
};

enum class AfterRun : std::uint8_t { kKeep, kRunAgainSlower, kFail };

// Decides whether the results of a run are kept. A late run is kept if the user chose the rate, or
// if the run cannot be done again. Otherwise the lab is responsible for being on time.
AfterRun after_run(const EndedRun& run);

struct Calibration {
  double dilation = 1;     // the least at which a trial was on time; 1: no slowdown
  int interrupted_by = 0;  // the signal that ended a trial; `dilation` then means nothing
};

// Takes about a second per trial.
base::Result<Calibration> calibrate(const LabOptions& options);

// "125mbit", as --rate takes it.
std::string rate_option(base::BitRate rate);

// ------------------------------------------------------------------ the load of one rank

// In a trial, every rank loads the fabric and this machine's CPUs like the busiest job. It sends
// full datagrams to the next rank at its link's rate, acknowledges every second datagram that it
// receives with a small one, as TCP does, and computes meanwhile. Finally it prints which share of
// the load it sent. A rank that got too little CPU time sent less, and then its trial does not
// count.
struct LoadOptions {
  std::string peers;  // as in SPILLWAY_PEERS; their ports are not used
  std::size_t rank = 0;
  base::BitRate rate;
  unsigned mtu = 1500;
  base::Duration length = base::milliseconds(500);
};

// Runs the load and prints a line for least_share_sent().
base::Status run_load(const LoadOptions& options);

// The smallest share of its load that any of `ranks` ranks printed. 0 if a rank printed none.
double least_share_sent(std::string_view printed, std::size_t ranks);

}  // namespace spillway::lab
