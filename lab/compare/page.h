// SPDX-License-Identifier: Apache-2.0
//
// A comparison as one HTML page that opens without a network: a table, charts as inline SVG, fonts
// of the reader's system, no script. Text from commands and logs is escaped, never markup. Pure.
#pragma once

#include <string>
#include <vector>

#include "lab/compare/comparison.h"
#include "lab/compare/notes.h"

namespace spillway::compare {

std::string comparison_page(const Comparison& comparison, const std::vector<Fact>& network);

}  // namespace spillway::compare
