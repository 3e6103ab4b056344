// SPDX-License-Identifier: Apache-2.0
//
// What a communicator's operations wait for, counted on the board that whoever runs this process
// put up (net/wait_board.h):
//
//   SPILLWAY_WAITS   the board's path; unset: nothing is counted and nothing looked at
//
// While an operation is under way it looks every net::kWaitLookEvery, at times that are multiples
// of it, so that looks do not follow the operations' own rhythm. A look that is late by whole turns
// found the loop's thread at work, or without a processor: those turns count as computing.
//
// One thread, the communicator's. Any number of communicators share a board.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"
#include "net/wait_board.h"
#include "transport/endpoint.h"

namespace spillway::runtime {

net::Wait wait_of(transport::Holdup holdup, bool is_computing);

class WaitWatch {
 public:
  // With a warning where the board cannot be had; an empty path is none.
  explicit WaitWatch(const std::string& path);
  explicit WaitWatch(std::optional<net::WaitBoard> board) : board_(std::move(board)) {}

  void begin(base::Instant now);
  void end();
  // When to look(); kNever where nothing is under way or nobody wants to know.
  base::Instant next_look() const { return due_; }
  void look(net::Wait wait, base::Instant now);
  // Its bytes; counted from what was told before.
  void tell(const transport::EndpointCounters& counters);

 private:
  std::optional<net::WaitBoard> board_;
  std::uint64_t under_way_ = 0;
  base::Instant due_ = transport::kNever;
  net::WaitCounts told_;
};

}  // namespace spillway::runtime
