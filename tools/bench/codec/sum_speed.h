// SPDX-License-Identifier: Apache-2.0
//
// Speed at which one rank encodes addable codes and decodes sums: values to words and back, for a
// group of eight, in rows as long as collective/summed has them. Lanes have room for the sums of
// all eight; the decoded words are one rank's part.
#pragma once

#include <string>
#include <vector>

#include "codec/level_code.h"
#include "tools/bench/codec/speed.h"

namespace spillway::bench {

inline constexpr unsigned kSumSpeedRanks = 8;

CodecSpeed levels_speed(const SpeedRun& run, const std::string& name, const codec::LevelCode& code);
CodecSpeed blocks_speed(const SpeedRun& run, const std::string& name);

// The codes that bench codec shows.
std::vector<CodecSpeed> sum_speeds(const SpeedRun& run);

}  // namespace spillway::bench
