// SPDX-License-Identifier: Apache-2.0
//
// Soak tests of sums (sum_world.h): every part counts once or is named as missing, whatever happens
// on the way. What is judged is never the endpoints' own word: words are made and added up apart.
//
//   sums     at every rank, every chunk's words are those of exactly the ranks it names, added up
//   names    all ranks name the same ones of a chunk, the owner among them where it contributes
//   bounds   no more parts are missing than the bound forgives, unless there is a deadline
//   ends     every sum is over at every rank in time; nothing is left on its way
//
// A world is a function of its seed, and so is all that happens in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/soak/sum_world.h"
#include "sim/sum_totals.h"
#include "wire/rank_set.h"

namespace spillway::sim {

// One sum at one rank, in the end.
struct SumRecord {
  std::uint32_t job = 0;  // in the world
  std::uint64_t operation = 0;
  std::uint16_t piece = 0;
  std::uint16_t rank = 0;
  bool is_over = false;
  std::vector<std::uint64_t> words;  // of all chunks
  std::vector<wire::RankSet> ranks;  // in each
};

struct SumSoakRecord {
  std::vector<SumRecord> sums;
  spillway_sum_counters switches = {};  // all together
  std::uint64_t parts = 0;              // that contributors were asked for
  std::uint64_t missing = 0;            // of these, those that are in no sum
  std::uint64_t refused = 0;            // sum packets whose tags did not match
  std::uint64_t packets = 0;            // that hosts sent
  std::uint64_t packets_left = 0;       // in the pool, in the end
  std::uint64_t digest = 0;
};

struct SumSoakResult {
  SumWorld world;
  SumSoakRecord record;
  std::vector<std::string> failures;  // sentences; none: all is well
};

// What a rank puts into a word.
std::uint64_t sum_part(const SumJobPlan& job, std::uint64_t operation, std::uint16_t piece,
                       std::uint16_t rank, std::size_t word);

std::vector<std::string> check_sums(const SumWorld& world, const SumSoakRecord& record);

SumSoakResult run_sum_world(std::uint64_t seed);
SumSoakResult run_sum_world(const SumWorld& world);

}  // namespace spillway::sim
