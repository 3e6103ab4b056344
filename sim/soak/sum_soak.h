// SPDX-License-Identifier: Apache-2.0
//
// Soak tests of sums (sum_world.h): every part counts once or is named as missing. The checks do
// not trust the endpoints: they make and add up the words themselves.
//
//   sums     at every rank, every chunk's words are the sum of exactly the ranks it names
//   names    all ranks name the same ranks for a chunk, including the owner if it contributes
//   bounds   no more parts are missing than the loss bound allows
//   ends     every sum ends in time at every rank; no packet is left in the network
//
// A world, and everything that happens in it, is a function of its seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/soak/sum_world.h"
#include "sim/sum_totals.h"
#include "wire/rank_set.h"

namespace spillway::sim {

// The outcome of one sum at one rank.
struct SumRecord {
  std::uint32_t job = 0;  // index in the world
  std::uint64_t operation = 0;
  std::uint16_t piece = 0;
  std::uint16_t rank = 0;
  bool is_over = false;
  std::vector<std::uint64_t> words;  // of all chunks
  std::vector<wire::RankSet> ranks;  // of each chunk
};

struct SumSoakRecord {
  std::vector<SumRecord> sums;
  spillway_sum_counters switches = {};  // of all switches
  std::uint64_t parts = 0;              // of all contributors
  std::uint64_t missing = 0;            // parts that are in no sum
  std::uint64_t refused = 0;            // sum packets whose tags did not match
  std::uint64_t packets = 0;            // sent by hosts
  std::uint64_t packets_left = 0;       // in the pool at the end
  std::uint64_t digest = 0;
};

struct SumSoakResult {
  SumWorld world;
  SumSoakRecord record;
  std::vector<std::string> failures;  // sentences; empty if all is well
};

// A rank's value of a word.
std::uint64_t sum_part(const SumJobPlan& job, std::uint64_t operation, std::uint16_t piece,
                       std::uint16_t rank, std::size_t word);

std::vector<std::string> check_sums(const SumWorld& world, const SumSoakRecord& record);

SumSoakResult run_sum_world(std::uint64_t seed);
SumSoakResult run_sum_world(const SumWorld& world);

}  // namespace spillway::sim
