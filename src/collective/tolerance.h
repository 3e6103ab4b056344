// SPDX-License-Identifier: Apache-2.0
//
// How much of an all-reduce may be lost, and what the caller gets for it. Values are sent as bit
// planes of rotated rows, so what a switch cuts off or drops costs a little everywhere instead of
// everything somewhere; sums are corrected for what did not come, so that they are right on
// average.
//
// The sums themselves come back reliably, with the same planes for everybody: all ranks end with
// the same bytes. `lossy_gather` gives that up, and the report says how far the replicas drifted.
//
// A plain value.
#pragma once

#include <cstdint>

namespace spillway::collective {

struct Tolerance {
  std::uint8_t precision = 16;         // planes per coordinate towards the owners, 1 to 32
  std::uint8_t gather_precision = 16;  // planes of the sums that come back
  std::uint32_t bound_ppm = 10'000;    // packets of a contribution that may stay missing
  std::uint8_t min_planes = 1;         // of a trimmed packet, for it to count as delivered
  bool lossy_gather = false;
  // Names the tensor across steps: what coding left out of it is added to its next step. 0: no.
  std::uint64_t feedback_tensor = 0;
  // With a share above 0: ranks that are late are not waited for longer than usual, as long as this
  // share of the contributions to each shard is there.
  double least_contributors = 0.0;
};

}  // namespace spillway::collective
