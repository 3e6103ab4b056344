// SPDX-License-Identifier: Apache-2.0
//
// How long communication takes: what a graph run (graph_run.h) asks. It is told of each transfer
// when all who take part have come, moves time on, and says which have ended.
//
// A transfer is one meeting: a collective among the ranks of a group, or a message. Its name is the
// meeting's index. Time never goes back. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "emulate/trace/meetings.h"

namespace spillway::emulate {

struct Transfer {
  MeetingIndex meeting = 0;
  CollectiveKind collective = CollectiveKind::kAllReduce;
  bool is_message = false;
  std::uint32_t group = 0;  // of a collective
  std::uint32_t from = 0;   // of a message
  std::uint32_t to = 0;
  std::uint32_t root = 0;  // a rank, where the collective has one
  std::uint64_t bytes = 0;
  base::Duration recorded{};  // the longest that a trace says
};

class CommunicationModel {
 public:
  virtual ~CommunicationModel() = default;

  // What it cannot carry is an error with the sentence.
  virtual base::Status begin(const Transfer& transfer, base::Instant now) = 0;
  // Moves on until a transfer ends, but not beyond `limit`, and returns the time. Those that have
  // ended then are appended to `ended`, in the order of their meetings.
  virtual base::Instant advance(base::Instant limit, std::vector<MeetingIndex>& ended) = 0;
  virtual bool has_open() const = 0;
  // What it has done so far: flows that changed, packets that moved.
  virtual std::uint64_t events() const = 0;
};

}  // namespace spillway::emulate
