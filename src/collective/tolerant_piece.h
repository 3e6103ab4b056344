// SPDX-License-Identifier: Apache-2.0
//
// One piece of a tolerant all-reduce, seen from one rank, and what has to be calculated for it:
// this rank's contribution, the sum at its owner, the sum everywhere else.
//
// Calculations may run on any thread, one at a time per piece; of the caller's memory they touch
// the piece's own extent.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/coded_payload.h"
#include "collective/operation.h"
#include "collective/tolerant_layout.h"

namespace spillway::collective {

struct PieceState {
  TolerantPiece place;
  bool is_encoded = false;  // its contribution has been read from the caller's memory
  bool has_come = false;    // its sum has been received
  bool is_held = false;     // its sum is in the output
  bool is_dropped = false;  // its shard does not count
  std::unique_ptr<CodedSource> contribution;
  std::unique_ptr<CodedSink> sum;
  double drift = 0.0;  // expected, of the sum to the owner's

  // At its owner.
  std::vector<std::unique_ptr<CodedSink>> contributions;  // by rank
  std::vector<bool> was_cut;  // by rank: its contribution had not ended when time was up
  std::uint16_t open_contributions = 0;
  std::uint16_t there = 0;  // contributions that have ended in time, and the owner's own
  bool is_adding_up = false;
  std::unique_ptr<CodedSource> result;
  std::uint16_t contributors = 0;  // ranks of which something is in the sum
};

// What the pieces of an operation have in common.
struct PieceWork {
  Operation operation;
  Group group;
  packetize::Job job;
  const std::uint8_t* input = nullptr;
  std::uint8_t* output = nullptr;
  std::span<float> residual;  // of the tensor, for error feedback; or empty
};

// Encodes this rank's part. With error feedback: and what it is owed, keeping what coding leaves
// out.
void encode_contribution(const PieceWork& work, const wire::MessageId& message, PieceState& piece);
// Adds up what came: the owner's own, then by rank; corrects for what did not, and encodes the sum;
// the output becomes what everybody will decode. Of a contribution that was cut, rows count of
// which half or more came: with less, what is missing is a greater error than doing without the
// rank. A server has no part of its own and no output.
void add_up_contributions(const PieceWork& work, const wire::MessageId& message, PieceState& piece);
// The sum that came, into the output.
void decode_sum(const PieceWork& work, PieceState& piece);
// Zero into the output.
void clear_output(const PieceWork& work, const PieceState& piece);

}  // namespace spillway::collective
