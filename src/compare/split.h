// SPDX-License-Identifier: Apache-2.0
//
// Where a gain over `tcp` comes from: fewer bits, the transport that carries them, or the order in
// which it carries them. Each transport has a control that sends the same bits over plain TCP, and
// `spillway` has a flat twin that sends no layer before another (transport.h), so that
//
//   gain       = time of tcp / time of the run          above 1: faster
//   bits       = time of tcp / time of the control
//   transport  = time of the control / time of the flat twin
//   scheduling = time of the flat twin / time of the run
//
// and gain = bits x transport x scheduling. Without a twin in the comparison, scheduling is unknown
// and part of the transport. A run that failed has no time. A transport that is its own control
// gains by bits alone, one whose control is tcp by its transport alone. Times are medians of steps
// or, where a run that did not fail has none, of the whole command. Where else a control
// differs counts, too: Spillway's collectives are in the bits of `spillway`, whose control has
// them, and in the transport of `spillway-16`, whose control has Gloo's. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compare/comparison.h"

namespace spillway::compare {

struct GainShare {
  std::string name;     // of the transport
  std::string title;    // the same for people
  std::string control;  // whose bits it has
  std::optional<double> gain;
  std::optional<double> bits;  // none: the control was not run, or has no time
  std::optional<double> transport;
  std::optional<double> scheduling;  // none: no twin was run, or it has no time
};

struct GainSplit {
  Metric metric;                  // that the times are of
  std::vector<GainShare> shares;  // of all runs but tcp, in their order
};

// None: there is no run over tcp, or nothing beside it.
std::optional<GainSplit> split_of(const Comparison& comparison);

// For whoever reads the parts, in a sentence or two.
std::string split_explanation(const GainSplit& split);

}  // namespace spillway::compare
