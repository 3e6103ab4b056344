// SPDX-License-Identifier: Apache-2.0
#include "switch/dataplane/port_config.h"

#include <fmt/format.h>

#include "switch/dataplane/admission.h"
#include "wire/packet.h"

namespace spillway::dataplane {
namespace {

constexpr std::uint32_t kKibi = 1024;
// A trimmed frame must keep its headers. IPv4's are the shorter ones, and a port carries IPv6 as
// well.
constexpr std::uint32_t kHeaderBytes = spillway_frame_overhead(0);

base::Status bad(std::string message) {
  return base::invalid_argument(std::move(message));
}

base::Status validate_queues(const spillway_port_config& config) {
  if (config.mode > SPILLWAY_PORT_SPILLWAY) {
    return bad(fmt::format("port mode {} is not one of 0..3", config.mode));
  }
  if (config.priorities < 1 || config.priorities > SPILLWAY_DATA_QUEUES) {
    return bad(fmt::format("a port has 1 to 8 priorities, not {}", config.priorities));
  }
  if (config.queue_bytes == 0 || config.queue_bytes > SPILLWAY_MAX_QUEUE_BYTES) {
    return bad(fmt::format("a queue of {} bytes: the limit must be from 1 byte to {} bytes",
                           config.queue_bytes, SPILLWAY_MAX_QUEUE_BYTES));
  }
  return {};
}

base::Status validate_red(const spillway_port_config& config) {
  if (config.red_min_bytes > config.red_max_bytes) {
    return bad(fmt::format("marking begins at {} bytes, beyond its end at {} bytes",
                           config.red_min_bytes, config.red_max_bytes));
  }
  if (config.red_max_bytes > SPILLWAY_MAX_QUEUE_BYTES) {
    return bad(fmt::format("marking ends at {} bytes, beyond the largest queue of {} bytes",
                           config.red_max_bytes, SPILLWAY_MAX_QUEUE_BYTES));
  }
  if (config.red_max_percent > 100) {
    return bad(fmt::format("{} % is not a probability", config.red_max_percent));
  }
  return {};
}

base::Status validate_control_queue(const spillway_port_config& config) {
  if (config.control_queue_bytes == 0 || config.control_queue_bytes > SPILLWAY_MAX_QUEUE_BYTES) {
    return bad(fmt::format("a control queue of {} bytes: the limit must be from 1 byte to {} bytes",
                           config.control_queue_bytes, SPILLWAY_MAX_QUEUE_BYTES));
  }
  if (config.control_share_percent < 1 || config.control_share_percent > 100) {
    return bad(fmt::format("the control queue's share must be 1 to 100 %, not {} %",
                           config.control_share_percent));
  }
  if (config.trim_bytes != 0 && config.trim_bytes <= kHeaderBytes) {
    return bad(fmt::format("trimming to {} bytes leaves nothing behind {} bytes of headers",
                           config.trim_bytes, kHeaderBytes));
  }
  if (config.trim_bytes > SPILLWAY_MAX_TRIM_BYTES) {
    return bad(fmt::format("trimming to {} bytes: at most {} bytes of a frame are kept",
                           config.trim_bytes, SPILLWAY_MAX_TRIM_BYTES));
  }
  if (config.lengths > SPILLWAY_LENGTHS_STALE) {
    return bad(fmt::format("length setting {} is not one of 0..2", config.lengths));
  }
  if (config.trimmed_dscp > 63) {
    return bad(fmt::format("DSCP {} is not one of 0..63", config.trimmed_dscp));
  }
  if (config.mode == SPILLWAY_PORT_SPILLWAY && config.early_drop_bytes > config.queue_bytes) {
    return bad(fmt::format("early drop from {} bytes, beyond the queue's limit of {} bytes",
                           config.early_drop_bytes, config.queue_bytes));
  }
  return {};
}

}  // namespace

spillway_port_config default_port_config(spillway_port_mode mode) {
  spillway_port_config config = {};
  config.mode = mode;
  config.priorities = 1;
  config.queue_bytes = 1024 * kKibi;
  config.control_share_percent = 50;
  config.trimmed_dscp = SPILLWAY_DSCP_TRIMMED;
  if (mode == SPILLWAY_PORT_ECN) {
    config.red_min_bytes = 100'000;
    config.red_max_bytes = 100'000;
    config.red_max_percent = 100;
  } else if (mode == SPILLWAY_PORT_TRIM) {
    config.queue_bytes = 72'000;
    config.control_queue_bytes = 72'000;
    config.trim_bytes = 256;
    config.control_share_percent = 90;
  } else if (mode == SPILLWAY_PORT_SPILLWAY) {
    config.priorities = SPILLWAY_DATA_QUEUES;
    config.queue_bytes = 128 * kKibi;
    config.control_queue_bytes = 128 * kKibi;
    config.early_drop_bytes = config.queue_bytes / 4;
    config.ecn_bytes = config.queue_bytes / 8;
    config.trim_bytes = 256;
  }
  return config;
}

base::Status validate(const spillway_port_config& config) {
  base::Status status = validate_queues(config);
  if (status.ok() && config.mode == SPILLWAY_PORT_ECN) {
    status = validate_red(config);
  }
  if (status.ok() && spillway_port_trims(&config)) {
    status = validate_control_queue(config);
  }
  return status;
}

std::string_view port_mode_name(spillway_port_mode mode) {
  switch (mode) {
    case SPILLWAY_PORT_DROP_TAIL:
      return "drop-tail";
    case SPILLWAY_PORT_ECN:
      return "ecn";
    case SPILLWAY_PORT_TRIM:
      return "trim";
    case SPILLWAY_PORT_SPILLWAY:
      return "spillway";
  }
  return "unknown";
}

std::string_view reason_name(spillway_reason reason) {
  switch (reason) {
    case SPILLWAY_REASON_ADMITTED:
      return "admitted";
    case SPILLWAY_REASON_MARKED:
      return "marked";
    case SPILLWAY_REASON_TRIMMED:
      return "trimmed";
    case SPILLWAY_REASON_DIVERTED:
      return "diverted";
    case SPILLWAY_REASON_QUEUE_FULL:
      return "queue full";
    case SPILLWAY_REASON_EARLY:
      return "early drop";
    case SPILLWAY_REASON_RED:
      return "red drop";
    case SPILLWAY_REASON_CONTROL_FULL:
      return "control queue full";
  }
  return "unknown";
}

void add_counters(const spillway_port_counters& from, spillway_port_counters& to) {
  for (int reason = 0; reason < SPILLWAY_REASONS; ++reason) {
    to.packets[reason] += from.packets[reason];
    to.bytes[reason] += from.bytes[reason];
  }
  for (int importance = 0; importance < SPILLWAY_PRIORITIES; ++importance) {
    to.trimmed[importance] += from.trimmed[importance];
    to.dropped[importance] += from.dropped[importance];
  }
  to.dropped_control += from.dropped_control;
  for (int home = 0; home < SPILLWAY_QUEUES; ++home) {
    for (int reason = 0; reason < SPILLWAY_REASONS; ++reason) {
      to.by_class[home][reason] += from.by_class[home][reason];
    }
  }
}

}  // namespace spillway::dataplane
