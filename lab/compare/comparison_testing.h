// SPDX-License-Identifier: Apache-2.0
//
// A comparison of two runs to test with: the second takes half as long and has twice the packets.
#pragma once

#include "lab/compare/comparison.h"

namespace spillway::compare {

inline RunRecord sample_run(const char* transport, double scale) {
  RunRecord run;
  run.transport = parse_transports(transport)->front();
  run.log_path = "/logs/" + run.transport.name + ".jsonl";
  run.outcome.exit_codes = {0, 0};
  run.outcome.elapsed = base::nanoseconds(static_cast<std::int64_t>(scale * 20e9));
  run.outcome.cpu = base::seconds(8);
  fabric::PortSnapshot& port = run.outcome.fabric.ports.emplace_back();
  port.sent_bytes = 1'250'000'000;
  port.counters.packets[SPILLWAY_REASON_TRIMMED] = static_cast<std::uint64_t>(1000 / scale);
  for (std::uint64_t i = 1; i <= 100; ++i) {
    const double seconds = scale * 0.1 * static_cast<double>(i);
    run.log.steps.push_back(
        {i, seconds, scale * static_cast<double>(i), 1.0 / static_cast<double>(i)});
    lab::FabricSample& sample = run.samples.emplace_back();
    sample.at = base::milliseconds(static_cast<std::int64_t>(100 * i));
    sample.queued_bytes = 1024 * i;
    sample.deepest_bytes = 512 * i;
    sample.trimmed = 10 * i;
    sample.lost = i;
  }
  run.log.evaluations = {{50, scale * 5, 0.5}, {100, scale * 10, 0.8}};
  return run;
}

inline Comparison sample_comparison() {
  Comparison comparison;
  comparison.command = {"train", "<{backend}>"};
  comparison.runs = {sample_run("tcp", 1.0), sample_run("spillway", 0.5)};
  comparison.runs[1].log.evaluations.back().accuracy = 0.75;
  return comparison;
}

}  // namespace spillway::compare
