// SPDX-License-Identifier: Apache-2.0
//
// How long communication takes, as a graph run (graph_run.h) asks. The run begins each transfer
// once all participants have arrived. The model advances time and reports the transfers that have
// ended.
//
// A transfer is one meeting: a collective among the ranks of a group, or a message. The meeting's
// index is its name. Time never goes back. One thread.
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
  std::uint32_t group = 0;  // for a collective
  std::uint32_t from = 0;   // for a message
  std::uint32_t to = 0;
  std::uint32_t root = 0;  // a rank, if the collective has a root
  std::uint64_t bytes = 0;
  base::Duration recorded{};  // the longest that a trace recorded
};

class CommunicationModel {
 public:
  virtual ~CommunicationModel() = default;

  // Fails with an explanation if the model cannot carry the transfer.
  virtual base::Status begin(const Transfer& transfer, base::Instant now) = 0;
  // Advances until a transfer ends, but not beyond `limit`, and returns that time. Appends the
  // transfers that end then to `ended`, in the order of their meetings.
  virtual base::Instant advance(base::Instant limit, std::vector<MeetingIndex>& ended) = 0;
  virtual bool has_open() const = 0;
  // Work done so far: flows that changed, packets that moved.
  virtual std::uint64_t events() const = 0;
};

}  // namespace spillway::emulate
