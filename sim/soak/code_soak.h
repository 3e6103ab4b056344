// SPDX-License-Identifier: Apache-2.0
//
// Soak tests of codes (code_world.h). Whatever is lost, late, forgotten or aborted:
//
//   same     all ranks at which a call ended well have the same bits
//   right    the result is the mean of the ranks' inputs, within the code's accuracy
//   ends     every call ends in time at every rank; no packet is left in the network
//   errors   a call fails only if a rank aborted
//
// The mean is computed independently, in doubles. A world, and everything that happens in it, is a
// function of its seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective/report.h"
#include "sim/soak/code_world.h"

namespace spillway::sim {

// The outcome of a call at one rank in one epoch.
struct CodeRecord {
  std::uint32_t epoch = 0;
  std::uint32_t call = 0;
  std::uint16_t rank = 0;
  bool is_over = false;
  base::Status status;
  std::vector<float> output;
  collective::OperationReport report;
};

struct CodeSoakRecord {
  std::vector<CodeRecord> calls;
  std::uint64_t tables = 0;        // sent along
  std::uint64_t given_up = 0;      // calls that failed at a rank because of an abort
  std::uint64_t packets = 0;       // sent by hosts
  std::uint64_t packets_left = 0;  // in the pool at the end
  std::uint64_t digest = 0;
};

struct CodeSoakResult {
  CodeWorld world;
  CodeSoakRecord record;
  std::vector<std::string> failures;  // sentences; empty if all is well
};

// A rank's input to a call.
std::vector<float> code_input(const CodeWorld& world, std::uint32_t call, std::uint16_t rank);

std::vector<std::string> check_codes(const CodeWorld& world, const CodeSoakRecord& record);

CodeSoakResult run_code_world(std::uint64_t seed);

}  // namespace spillway::sim
