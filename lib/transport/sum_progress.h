// SPDX-License-Identifier: Apache-2.0
//
// How far the parts of one sum are known, at its owner, to have been sent. Ranks send their parts
// in the order of chunks and over one path, so a part of a chunk shows that all before it were
// sent. A rank that asks for a result has sent its part.
//
// A missing part may wait in a switch for ranks that have not come so far; asking for it then takes
// the slot's sum apart. A part that all ranks have sent is either here within the time that packets
// differ by, or lost. So an owner asks for nothing earlier, as a sender takes a packet for lost
// when later ones arrived, and not by the clock.
//
// Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "wire/rank_set.h"

namespace spillway::transport {

class SumProgress {
 public:
  SumProgress() = default;
  explicit SumProgress(const wire::RankSet& contributors)
      : contributors_(contributors), sent_(SPILLWAY_SUM_RANKS) {}

  // `ranks` have sent their parts of this chunk and of all before it.
  void note(const wire::RankSet& ranks, std::uint32_t chunk) {
    bool has_changed = false;
    (ranks & contributors_).for_each([&](std::uint16_t rank) {
      has_changed |= sent_[rank] <= chunk;
      sent_[rank] = std::max(sent_[rank], chunk + 1);
    });
    if (!has_changed) {
      return;
    }
    sent_by_all_ = UINT32_MAX;
    contributors_.for_each(
        [&](std::uint16_t rank) { sent_by_all_ = std::min(sent_by_all_, sent_[rank]); });
  }

  // This rank has sent the chunks below this one.
  std::uint32_t sent_by(std::uint16_t rank) const { return sent_[rank]; }
  // All contributors have sent the chunks below this one.
  std::uint32_t sent_by_all() const { return sent_by_all_; }

 private:
  wire::RankSet contributors_;
  std::vector<std::uint32_t> sent_;  // by rank: chunks below this one were sent
  std::uint32_t sent_by_all_ = 0;
};

}  // namespace spillway::transport
