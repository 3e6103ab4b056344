// SPDX-License-Identifier: Apache-2.0
//
// Checks that this machine emulates a network on time, before anything is measured on it. In a
// short trial, hosts send at their links' rates and compute (load.h). If the fabric is late, time
// is slowed down (scenario/dilation.h), by a factor of two each time, until a trial is on time.
//
// The switch in the kernel does not know how late it is, and on loopback only Spillway's packets
// cross the fabric. So neither is tried.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "lab/lab_options.h"

namespace spillway::lab {

inline constexpr double kMaxDilation = 64;

// True if the fabric will run in user space, in namespaces.
base::Result<bool> can_be_late(const LabOptions& options);

// The dilation to use after a trial at `dilation` had this pace. The same value: it was on time,
// with room to spare for what a trial does not foresee. Null: nothing helps.
std::optional<double> next_dilation(const Pace& pace, double dilation);

// By how much to slow down a network in which a run was late, so that one restart is enough: the
// observed lateness would then be bearable, and it falls with the load. A power of two up to
// kMaxSlowdown; at least 4 if frames were lost.
inline constexpr double kMaxSlowdown = 8;
double slowdown_after(const Pace& late);

// The option value to give so that a run such as this late one is on time.
std::string remedy_after(const scenario::Scenario& scenario, const Pace& late);

struct Calibration {
  double dilation = 1;     // the least at which a trial was on time; 1: no slowdown
  int interrupted_by = 0;  // the signal that ended a trial; `dilation` then means nothing
};

// Takes about a second per trial.
base::Result<Calibration> calibrate(const LabOptions& options);

// "125mbit", as --rate takes it.
std::string rate_option(base::BitRate rate);

}  // namespace spillway::lab
