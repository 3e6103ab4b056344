// SPDX-License-Identifier: Apache-2.0
//
// The options that all verbs of `trace` have.
#pragma once

#include <CLI/CLI.hpp>

#include "lab/trace_summary.h"

namespace spillway::cli {

void add_trace_options(CLI::App& verb, lab::TraceOptions& options);

}  // namespace spillway::cli
