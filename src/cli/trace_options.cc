// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_options.h"

#include <CLI/CLI.hpp>

namespace spillway::cli {
namespace {

// Their sights and events take about 150 bytes each, the trace a kilobyte.
constexpr std::size_t kMostPackets = 10'000'000;

}  // namespace

void add_trace_options(CLI::App& verb, lab::TraceOptions& options) {
  options.path = "trace.json";
  verb.add_option("--out", options.path, "The file to write")->capture_default_str();
  verb.add_option("--packets", options.packets, "How many are kept, at most: the first")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, kMostPackets));
}

}  // namespace spillway::cli
