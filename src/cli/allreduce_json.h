// SPDX-License-Identifier: Apache-2.0
//
// The results of `bench allreduce` as JSON: the keys of the file that nccl-tests writes where it
// has them, yes and no as words included; the rest is Spillway's own. A pure function.
#pragma once

#include <string>
#include <vector>

#include "cli/allreduce_table.h"

namespace spillway::cli {

std::string allreduce_json(const AllreduceSettings& settings,
                           const std::vector<MeasuredSize>& sizes, unsigned world);

}  // namespace spillway::cli
