// SPDX-License-Identifier: Apache-2.0
#include "lab/trace/trace_summary.h"

#include "switch/dataplane/port_config.h"

namespace spillway::lab {

std::string_view outcome_name(PacketOutcome outcome) {
  switch (outcome) {
    case PacketOutcome::kWhole:
      return "whole";
    case PacketOutcome::kLost:
      return "lost";
    case PacketOutcome::kUnseen:
      return "sent unseen";
    default:
      return dataplane::reason_name(static_cast<spillway_reason>(outcome));
  }
}

}  // namespace spillway::lab
