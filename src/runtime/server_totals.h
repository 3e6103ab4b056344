// SPDX-License-Identifier: Apache-2.0
//
// What a parameter server has done so far. A plain value.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/report.h"

namespace spillway::runtime {

struct ServerTotals {
  struct Worker {
    std::uint64_t late = 0;  // operations that went on without some of its part
    std::uint64_t missing_packets = 0;
    std::uint64_t trimmed_packets = 0;
  };

  void add(const collective::OperationReport& report) {
    ++operations;
    tensor_bytes += report.operation.bytes();
    wire_bytes_sent += report.wire_bytes_sent;
    for (std::size_t rank = 0; rank < workers.size(); ++rank) {
      const collective::PeerDelivery& from = report.peers[rank];
      workers[rank].late += from.late ? 1 : 0;
      workers[rank].missing_packets += from.missing;
      workers[rank].trimmed_packets += from.trimmed;
    }
  }

  std::uint64_t operations = 0;
  std::uint64_t tensor_bytes = 0;     // of those operations, all servers together
  std::uint64_t wire_bytes_sent = 0;  // UDP payload
  std::vector<Worker> workers;        // by rank
};

}  // namespace spillway::runtime
