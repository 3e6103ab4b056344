// SPDX-License-Identifier: Apache-2.0
//
// What belongs beside the numbers of a comparison, for people who read it later: the network in
// words, and caveats. These are failed runs, missing or damaged logs, and an emulation that did not
// keep up. Sentences without markup. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "lab/compare/comparison.h"
#include "lab/lab_options.h"

namespace spillway::compare {

struct Fact {
  std::string name;
  std::string value;
};

std::vector<Fact> network_facts(const lab::LabOptions& options,
                                const std::vector<Transport>& transports);

// How much slower than the real network this one is, and what that means for step times. Empty if
// time is not slowed.
std::string slowdown_sentence(const lab::Slowdown& slowdown);

std::vector<std::string> notes_of(const Comparison& comparison);

}  // namespace spillway::compare
