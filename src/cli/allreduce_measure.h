// SPDX-License-Identifier: Apache-2.0
//
// All-reduces of one size at one rank of a benchmark, timed and checked.
//
// After a barrier, iterations follow each other without one. The time of an iteration is that of
// the rank where it took longest, divided by the operations in flight. Checked operations come
// behind the timed ones and start from fresh inputs; so does every tolerant operation in place,
// because sums of sums would grow beyond what can be coded (a barrier follows, and neither is
// timed). Exact sums in place may well end as infinities.
//
// Blocking; throws CommandError. One thread. Memory: 1 + in_flight buffers of the size.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cli/allreduce_data.h"
#include "cli/allreduce_peers.h"
#include "cli/allreduce_settings.h"

namespace spillway::cli {

// What all ranks sent and got in the timed operations.
struct AllreduceTraffic {
  double wire_bytes = 0.0;
  double packets = 0.0;  // that were to come
  double trimmed = 0.0;
  double missing = 0.0;
  double repeated = 0.0;    // of those sent
  double operations = 0.0;  // at one rank
};

struct AllreducePass {
  std::vector<double> seconds{};  // of each iteration
  std::optional<double> wrong{};  // elements, of all ranks and checks
};

struct AllreduceRow {
  std::size_t bytes = 0;
  std::size_t count = 0;                                                // elements
  collective::Algorithm algorithm = collective::Algorithm::kAutomatic;  // that was used
  AllreducePass out_of_place{};
  AllreducePass in_place{};
  AllreduceTraffic traffic{};
  std::optional<double> nmse{};          // against sums in double precision
  std::optional<bool> replicas_agree{};  // whether all ranks ended with the same bytes
  // UDP payload for every element that crosses the network: an all-reduce moves 2 (n - 1) of each.
  // Through servers the ranks send n; what servers send is not counted here.
  std::optional<double> wire_bytes_per_element(unsigned world) const;
};

// The same row at every rank.
AllreduceRow measure_allreduce(const AllreduceSettings& settings, std::size_t bytes,
                               const AllreduceData& data, AllreducePeers& peers);

}  // namespace spillway::cli
