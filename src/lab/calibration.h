// SPDX-License-Identifier: Apache-2.0
//
// Whether this machine emulates a network on time, found before anything is measured on it: a short
// trial with hosts that send at their links' rates and compute (load.h). Where the fabric is late,
// time is slowed down (scenario/dilation.h) by two and by two again until a trial is on time.
//
// The switch in the kernel does not know how late it is, and on loopback only Spillway's packets
// cross the fabric: neither is tried.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "lab/lab_options.h"

namespace spillway::lab {

inline constexpr double kMaxDilation = 64;

// True if the fabric will run in user space, in namespaces.
base::Result<bool> can_be_late(const LabOptions& options);

// By how much to slow the network down after a trial at `dilation` went like `pace`; the same: it
// was on time, with room to spare for what a trial does not foresee. None: nothing helps.
std::optional<double> next_dilation(const Pace& pace, double dilation);

// By how much to slow down a network in which a run was late, so that one new start is enough:
// lateness of as many microseconds would be bearable then, and it falls with the load. A power of
// two up to kMaxSlowdown; where frames were lost, at least 4.
inline constexpr double kMaxSlowdown = 8;
double slowdown_after(const Pace& late);

struct Calibration {
  double dilation = 1;     // the least at which trials are on time; 1: as it is
  int interrupted_by = 0;  // the signal that ended a trial; then nothing is known of the dilation
};

// Takes about a second a trial.
base::Result<Calibration> calibrate(const LabOptions& options);

// "125mbit", as --rate takes it.
std::string rate_option(base::BitRate rate);

}  // namespace spillway::lab
