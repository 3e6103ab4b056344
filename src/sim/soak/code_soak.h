// SPDX-License-Identifier: Apache-2.0
//
// Soak tests of codes (code_world.h): whatever is lost, late, forgotten or given up,
//
//   same     of a call that ended well at several ranks, all have the same bits
//   right    they are the mean of what the ranks put in, as far as the code is good for
//   ends     every call is over at every rank in time; nothing is left on its way
//   errors   a call fails only where somebody gave up
//
// The mean is reckoned apart, in doubles. A world is a function of its seed, and so is all that
// happens in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective/report.h"
#include "sim/soak/code_world.h"

namespace spillway::sim {

// One call of one epoch at one rank, in the end.
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
  std::uint64_t tables = 0;        // that travelled along
  std::uint64_t given_up = 0;      // calls at ranks, because of an abort
  std::uint64_t packets = 0;       // that hosts sent
  std::uint64_t packets_left = 0;  // in the pool, in the end
  std::uint64_t digest = 0;
};

struct CodeSoakResult {
  CodeWorld world;
  CodeSoakRecord record;
  std::vector<std::string> failures;  // sentences; none: all is well
};

// What a rank puts into a call.
std::vector<float> code_input(const CodeWorld& world, std::uint32_t call, std::uint16_t rank);

std::vector<std::string> check_codes(const CodeWorld& world, const CodeSoakRecord& record);

CodeSoakResult run_code_world(std::uint64_t seed);

}  // namespace spillway::sim
