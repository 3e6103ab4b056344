// SPDX-License-Identifier: Apache-2.0
#include "runtime/communicator_metrics.h"

namespace spillway::runtime {

void CommunicatorMetrics::add(const OperationRecord& record) {
  OperationCounts& counts = operations[record.kind];
  ++(record.state == OperationState::kDone ? counts.done : counts.failed);
  durations.add(record.finished - record.queued);
  wire_bytes_sent += record.wire_bytes_sent;
  wire_bytes_received += record.wire_bytes_received;
  packets_whole += record.packets_whole;
  packets_trimmed += record.packets_trimmed;
  packets_missing += record.packets_missing;
  packets_duplicate += record.packets_duplicate;
  packets_retransmitted += record.packets_retransmitted;
}

}  // namespace spillway::runtime
