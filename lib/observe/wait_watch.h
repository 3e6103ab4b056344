// SPDX-License-Identifier: Apache-2.0
//
// Samples what a communicator's operations wait for, and counts it on a board that the observing
// process, such as a lab, creates (net/wait_board.h):
//
//   SPILLWAY_WAITS   the board's path; unset: no sampling
//
// While an operation is in flight, it samples every net::kWaitLookEvery, at multiples of that
// period, so that samples do not follow the operations' rhythm. If a sample is late by whole
// periods, the loop's thread was busy or had no processor: those periods count as computing.
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
  // Warns if the board cannot be opened; an empty path means no board.
  explicit WaitWatch(const std::string& path);
  explicit WaitWatch(std::optional<net::WaitBoard> board) : board_(std::move(board)) {}

  void begin(base::Instant now);
  void end();
  // When to call look(); kNever if no operation is in flight or there is no board.
  base::Instant next_look() const { return due_; }
  void look(net::Wait wait, base::Instant now);
  // Adds the bytes counted since the last call.
  void tell(const transport::EndpointCounters& counters);

 private:
  std::optional<net::WaitBoard> board_;
  std::uint64_t under_way_ = 0;
  base::Instant due_ = transport::kNever;
  net::WaitCounts told_;
};

}  // namespace spillway::runtime
