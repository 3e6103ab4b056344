// SPDX-License-Identifier: Apache-2.0
#include "observe/operation_record.h"

#include "observe/safe_text.h"

namespace spillway::runtime {

const char* operation_state_name(OperationState state) {
  switch (state) {
    case OperationState::kQueued:
      return "queued";
    case OperationState::kRunning:
      return "running";
    case OperationState::kDone:
      return "done";
    case OperationState::kFailed:
      return "failed";
  }
  return "unknown";
}

void OperationRecord::add_late_rank(std::uint32_t rank) {
  if (late_count < kMaxLateRanks) {
    late_ranks[late_count] = rank;
  }
  ++late_count;
}

void OperationRecord::fail(base::StatusCode code, std::string_view why, std::int32_t culprit,
                           base::Instant at) {
  state = OperationState::kFailed;
  error = code;
  culprit_rank = culprit;
  finished = at;
  copy_clean(why, message);
}

}  // namespace spillway::runtime
