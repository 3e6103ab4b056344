// SPDX-License-Identifier: Apache-2.0
//
// Options for a model's shape and parallelism, for `emulate synthesize` and `emulate simulate`.
#pragma once

#include "emulate/synthesize/llm_step.h"

namespace CLI {
class App;
}

namespace spillway::cli {

void add_llm_options(CLI::App& command, emulate::LlmStepOptions& options);
// Throws a usage error if the numbers do not fit together.
void check_model(const emulate::LlmStepOptions& options);

}  // namespace spillway::cli
