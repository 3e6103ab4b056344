// SPDX-License-Identifier: Apache-2.0
//
// What a listener keeps about the probers that sent bursts lately: a count each, by their session.
// At most kMost of them; a new one takes the place of the one that was silent longest, if that was
// silent for kKept at least, and is turned away otherwise. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "doctor/arrival_summary.h"

namespace spillway::doctor {

class ProberTable {
 public:
  static constexpr std::size_t kMost = 64;
  static constexpr base::Duration kKept = base::seconds(10);

  struct Prober {
    std::uint64_t session = 0;
    base::Instant heard;
    std::uint64_t overflowed_before = 0;  // at the listener's socket, when it began
    ArrivalSummary summary{};
  };

  // Counts for this session start anew. Null where there is no room.
  Prober* begin(std::uint64_t session, base::Instant now);
  // Null where it is not known.
  Prober* find(std::uint64_t session);
  // The one whose burst carries this tag: the lower half of its session.
  Prober* find_tag(std::uint32_t tag);

  std::size_t size() const { return probers_.size(); }

 private:
  std::vector<Prober> probers_;
};

}  // namespace spillway::doctor
