// SPDX-License-Identifier: Apache-2.0
//
// Where a gain over TCP comes from: fewer bits, the transport that carries them, or the order in
// which it carries them. The baseline is TCP at its best: the faster of `tcp` and `tcp-bbr`, as far
// as they were compared. Each transport has a control that sends the same bits over plain TCP.
// `spillway` also has a flat twin that sends no layer before another (transport.h). So
//
//   gain       = time of the baseline / time of the run          above 1: faster
//   bits       = time of the baseline / time of the control
//   transport  = time of the control / time of the flat twin
//   scheduling = time of the flat twin / time of the run
//
// and gain = bits x transport x scheduling. Without a twin in the comparison, scheduling is unknown
// and part of the transport. A failed run has no time. A transport that is its own control gains by
// bits alone. A transport with the bits of `tcp` has the baseline as its control, and gains by its
// transport alone. The other controls run over TCP cubic only. Times are medians of steps or, if a
// run that did not fail has none, times of the whole command. Other differences between a transport
// and its control count, too. Spillway's collectives are in the bits of `spillway`, whose
// control has them. They are in the transport of `spillway-16`, whose control uses Gloo's. Pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/compare/comparison.h"

namespace spillway::compare {

struct GainShare {
  std::string name;     // the transport's
  std::string title;    // the same, for people
  std::string control;  // transport that sends the same bits over plain TCP
  std::optional<double> gain;
  std::optional<double> bits;  // null: the control was not run, or has no time
  std::optional<double> transport;
  std::optional<double> scheduling;  // null: no twin was run, or it has no time
};

struct GainSplit {
  Metric metric;                  // source of the times
  std::string baseline;           // "tcp" or "tcp-bbr"
  std::vector<GainShare> shares;  // all runs but the baseline, in their order
};

// Null if neither tcp nor tcp-bbr has a time, or if nothing is compared with it.
std::optional<GainSplit> split_of(const Comparison& comparison);

// Explains the parts to a reader, in a sentence or two.
std::string split_explanation(const GainSplit& split);

}  // namespace spillway::compare
