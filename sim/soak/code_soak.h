// SPDX-License-Identifier: Apache-2.0
//
// Soak tests of codecs, in random small worlds. Whatever is lost, late, forgotten or aborted:
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
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "collective/operation.h"
#include "collective/report.h"
#include "sim/scenario/scenario.h"

namespace spillway::sim {

// Random small worlds for all-reduces in every code. Some tensors are reduced step after step, over
// links that lose, duplicate, reorder, cut and damage. Ranks may be late or may have forgotten what
// others remember of a tensor. Steps may be aborted and repeated in a new epoch. All is drawn from
// one seed.
//
// No host dies and no link is cut for good, so every call that is not aborted ends well.

struct CodeTensor {
  std::size_t count = 0;
  double nonzero = 1.0;  // share of its values
  bool has_name = true;  // kept across operations
};

// One all-reduce of all ranks; lossless without a tolerance.
struct CodeCall {
  std::uint32_t tensor = 0;
  std::optional<collective::Tolerance> tolerance{};
  collective::Algorithm algorithm = collective::Algorithm::kAutomatic;
  std::optional<std::uint16_t> forgetful{};  // a rank that uses another name for the tensor
};

// A rank aborts during this call; a new epoch begins with the call.
struct CodeAbort {
  std::uint32_t call = 0;
  std::uint16_t rank = 0;
  base::Duration after;  // the start of the call at this rank
};

struct CodeWorld {
  std::uint64_t seed = 0;
  std::string text;
  scenario::Scenario scenario;
  std::uint16_t ranks = 0;
  std::vector<CodeTensor> tensors;
  std::vector<CodeCall> calls;
  std::optional<CodeAbort> abort;
  bool is_in_turn = false;  // a rank's next call waits for the end of the last one; else one every
                            // `gap`
  base::Duration gap;
  base::Duration jitter;  // largest random delay of a rank's call
  base::Duration limit;   // for an epoch to end
};

CodeWorld draw_code_world(std::uint64_t seed);

// Describes the whole world for people.
std::string describe(const CodeWorld& world);

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
