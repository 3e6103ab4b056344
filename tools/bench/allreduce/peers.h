// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a benchmark exchange beside the measured operations, as small exact operations
// of the same communicator. All ranks must make the same calls in the same order.
//
// Blocking; throws CommandError, which names the rank at fault, when the communicator has failed.
// One thread.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "collective/report.h"
#include "comm/communicator.h"

namespace spillway::bench {

class AllreducePeers {
 public:
  explicit AllreducePeers(runtime::Communicator& communicator) : communicator_(communicator) {}

  std::uint16_t rank() const { return communicator_.rank(); }
  std::uint16_t world() const { return communicator_.world(); }

  void barrier();
  // Replaces every value by the maximum, or the sum, over all ranks.
  void take_maximum(std::span<double> values);
  void add_up(std::span<double> values);
  // True if all ranks pass true.
  bool do_all(bool yes);
  // Returns rank 0's text, cut to kTextBytes.
  std::string from_first(const std::string& text);
  static constexpr std::size_t kTextBytes = 256;

  // Submits a measured operation.
  std::shared_ptr<runtime::Request> submit(const collective::Operation& operation);

 private:
  void fold(collective::ReduceOp op, std::span<double> values);
  // In place.
  void run(collective::Operation operation, void* buffer);

  runtime::Communicator& communicator_;
};

// Waits for the request to end; throws CommandError if it failed.
void wait_for(const runtime::Request& request);

}  // namespace spillway::bench
