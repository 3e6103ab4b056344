// SPDX-License-Identifier: Apache-2.0
//
// Size and speed of one rank's values as losslessly coded whole numbers, as collective/coded sends
// them: directly, or with a prediction of where they are zero. One scale per tensor; rounding is to
// nearest, as with error feedback.
//
// `previous` holds the same tensor's values of the step before, or is empty. The coder uses the
// probabilities of that step's numbers, which need not be sent. If there was no such step, or the
// message's own table would shorten it by 3 %, its own table is sent along and counted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tools/bench/codec/speed.h"

namespace spillway::bench {

enum class CodedTable : std::uint8_t { kOwn, kLastStep };
const char* coded_table_name(CodedTable table);  // "own, sent along", "last step's"

struct CodedSpeed {
  CodecSpeed speed;
  CodedTable table;
};

CodedSpeed coded_speed(const SpeedRun& run, unsigned precision, std::span<const float> previous);

// Measures a sketch's second step, after a first with `previous`; empty if it would be dense.
// Values that the sketch does not recover decode to zero.
std::optional<CodedSpeed> sketch_speed(const SpeedRun& run, unsigned precision,
                                       std::span<const float> previous);

}  // namespace spillway::bench
