// SPDX-License-Identifier: Apache-2.0
//
// The network of a lab in words, for people who read a report later. Pure.
#pragma once

#include <string>
#include <vector>

#include "lab/lab_options.h"

namespace spillway::compare {

struct Fact {
  std::string name;
  std::string value;
};

std::vector<Fact> network_facts(const lab::LabOptions& options);

}  // namespace spillway::compare
