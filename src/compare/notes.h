// SPDX-License-Identifier: Apache-2.0
//
// What a reader of a comparison must know before believing it: runs that failed, logs that are
// missing or damaged, an emulation that did not keep up. Sentences without markup. Pure.
#pragma once

#include <string>
#include <vector>

#include "compare/run_record.h"

namespace spillway::compare {

std::vector<std::string> notes_of(const Comparison& comparison);

}  // namespace spillway::compare
