// SPDX-License-Identifier: Apache-2.0
//
// The options of a model's shape and its parallelism, which `emulate synthesize` and `emulate
// simulate` share.
#pragma once

#include "emulate/synthesize/llm_step.h"

namespace CLI {
class App;
}

namespace spillway::cli {

void add_llm_options(CLI::App& command, emulate::LlmStepOptions& options);
// A usage error where its numbers do not fit together.
void check_model(const emulate::LlmStepOptions& options);

}  // namespace spillway::cli
