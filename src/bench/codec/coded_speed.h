// SPDX-License-Identifier: Apache-2.0
//
// How short and how fast one rank's values are as whole numbers that are coded without loss, the
// way collective/coded sends them: plainly, or behind a prediction of where they are zero. One
// scale per tensor; rounded to the nearest, as where error feedback makes up for it.
//
// `previous` has the same tensor's values of the step before, or none. The probabilities are those
// of that step's numbers, which need not be sent; where there was none, or the message's own would
// shorten it by 3 %, its own travel along and are counted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "bench/codec/speed.h"

namespace spillway::bench {

enum class CodedTable : std::uint8_t { kOwn, kLastStep };
const char* coded_table_name(CodedTable table);  // "own, sent along", "last step's"

struct CodedSpeed {
  CodecSpeed speed;
  CodedTable table;
};

CodedSpeed coded_speed(const SpeedRun& run, unsigned precision, std::span<const float> previous);

// The second step of a sketch, whose first was `previous`; nothing where it would go densely. What
// the sketch does not give back decodes to zero.
std::optional<CodedSpeed> sketch_speed(const SpeedRun& run, unsigned precision,
                                       std::span<const float> previous);

}  // namespace spillway::bench
