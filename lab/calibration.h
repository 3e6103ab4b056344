// SPDX-License-Identifier: Apache-2.0
//
// Checks that this machine emulates a network on time, before anything is measured on it. In a
// short trial, hosts send at their links' rates and compute (load.h). If the fabric is late, or if
// the hosts did not get to send nearly all of that, time is slowed down (scenario/dilation.h), by a
// factor of two each time, until a trial is on time.
//
// The switch in the kernel does not know how late it is, and on loopback only Spillway's packets
// cross the fabric. So neither is tried.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "lab/lab_options.h"

namespace spillway::lab {

inline constexpr double kMaxDilation = 64;

// True if the fabric will run in user space, in namespaces.
base::Result<bool> can_be_late(const LabOptions& options);

// A trial in which a host sent less of its load did not show whether the fabric bears the load.
inline constexpr double kLeastShareSent = 0.9;

// The dilation to use after a trial at `dilation` had this pace, and every host sent at least
// `share_sent` of its load. The same value: it was on time, with room to spare for what a trial
// does not foresee. Null: nothing helps.
std::optional<double> next_dilation(const Pace& pace, double share_sent, double dilation);

// By how much to slow down a network in which a run was late, so that one restart is enough: the
// observed lateness would then be bearable, and it falls with the load. A power of two up to
// kMaxSlowdown; at least 4 if frames were lost.
inline constexpr double kMaxSlowdown = 8;
double slowdown_after(const Pace& late);

// The option value to give so that a run such as this late one is on time.
std::string remedy_after(const scenario::Scenario& scenario, const Pace& late);

// What a starter knows about a run that has ended.
struct EndedRun {
  bool was_late = false;       // its commands succeeded, but the fabric fell behind
  bool rate_is_given = false;  // the user chose the links' rate
  bool allows_late = false;    // the user accepts late runs
  bool could_be_tried = true;  // as can_be_late(): the fabric ran in user space, in namespaces
  bool is_staged = false;      // ranks of a staged world, which enter it only once
  bool can_be_slower = true;   // it is the first run, and its network can be dilated
};

enum class AfterRun : std::uint8_t { kKeep, kRunAgainSlower, kFail };

// A late run counts if the lab did not choose the rate, or if it cannot be repeated. Otherwise the
// lab answers for being on time.
AfterRun after_run(const EndedRun& run);

struct Calibration {
  double dilation = 1;     // the least at which a trial was on time; 1: no slowdown
  int interrupted_by = 0;  // the signal that ended a trial; `dilation` then means nothing
};

// Takes about a second per trial.
base::Result<Calibration> calibrate(const LabOptions& options);

// "125mbit", as --rate takes it.
std::string rate_option(base::BitRate rate);

}  // namespace spillway::lab
