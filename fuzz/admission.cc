// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary frames through a switch port with arbitrary settings.
//
// The input is a port config as it lies in memory, then eight-byte frames. A frame with the highest
// bit of its flags set means: serve one packet instead. Configs that validate() refuses are not
// tried.
//
// Queues must keep their limits. Control packets are never trimmed, important data is never dropped
// early, and frames that are not ECN-capable are never marked. The port serves in order and never
// idles while packets wait.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

#include "fuzzing.h"
#include "switch/dataplane/admission.h"
#include "switch/dataplane/port_config.h"
#include "switch/dataplane/scheduling.h"

using spillway::fuzzing::require;

namespace {

class Port {
 public:
  explicit Port(const spillway_port_config& config) : config_(config) {}

  void offer(const spillway_frame& frame, std::uint32_t random) {
    spillway_decision decision = {};
    spillway_admit(&config_, &state_, &frame, random, &decision);
    spillway_count(&counters_, &frame, &decision);
    ++offered_;
    check_decision(frame, decision);
    if (decision.verdict == SPILLWAY_ENQUEUE) {
      spillway_enqueued(&state_, decision.queue, decision.bytes);
      queues_.at(decision.queue).push_back(decision.bytes);
    }
    check_state();
  }

  void serve() {
    const int queue = spillway_next_queue(&state_);
    const auto waiting = [](const std::deque<std::uint32_t>& sizes) { return !sizes.empty(); };
    require((queue == SPILLWAY_NO_QUEUE) == std::none_of(queues_.begin(), queues_.end(), waiting));
    if (queue == SPILLWAY_NO_QUEUE) {
      return;
    }
    if (queue != SPILLWAY_CONTROL_QUEUE) {
      require(std::none_of(queues_.begin() + queue + 1, queues_.end() - 1, waiting));
    }
    std::deque<std::uint32_t>& sizes = queues_.at(static_cast<std::size_t>(queue));
    require(!sizes.empty());
    spillway_dequeued(&config_, &state_, static_cast<__u8>(queue), sizes.front());
    sizes.pop_front();
    check_state();
  }

  void finish() {
    std::uint64_t counted = 0;
    for (const std::uint64_t packets : counters_.packets) {
      counted += packets;
    }
    require(counted == offered_);
    while (state_.occupied != 0) {
      serve();
    }
  }

 private:
  static void check_decision(const spillway_frame& frame, const spillway_decision& decision) {
    const bool is_control = (frame.flags & SPILLWAY_FRAME_CONTROL) != 0;
    require((decision.verdict == SPILLWAY_DROP) == (decision.reason >= SPILLWAY_REASON_QUEUE_FULL));
    require(!(is_control && decision.reason == SPILLWAY_REASON_TRIMMED));
    require(!(frame.importance >= SPILLWAY_IMPORTANCE_MARKED &&
              decision.reason == SPILLWAY_REASON_EARLY));
    require(decision.bytes <= frame.bytes);
    require((decision.bytes != frame.bytes) == (decision.dscp != frame.dscp));
    require(!(decision.ecn == SPILLWAY_ECN_CE && frame.ecn == SPILLWAY_ECN_NOT_ECT));
  }

  void check_state() const {
    for (unsigned queue = 0; queue < SPILLWAY_QUEUES; ++queue) {
      const bool is_control = queue == SPILLWAY_CONTROL_QUEUE;
      require(state_.bytes[queue] <=
              (is_control ? config_.control_queue_bytes : config_.queue_bytes));
      require(is_control || queue < config_.priorities || state_.packets[queue] == 0);
      require(state_.packets[queue] == queues_[queue].size());
      require(((state_.occupied >> queue & 1U) != 0) == !queues_[queue].empty());
    }
    require(std::abs(state_.control_balance) < 100 * static_cast<int>(SPILLWAY_MAX_FRAME_BYTES));
  }

  spillway_port_config config_;
  spillway_port_state state_ = {};
  spillway_port_counters counters_ = {};
  std::array<std::deque<std::uint32_t>, SPILLWAY_QUEUES> queues_;
  std::uint64_t offered_ = 0;
};

// Maps arbitrary bytes to a frame that a network card could deliver.
spillway_frame lawful(spillway_frame frame) {
  frame.bytes = 1 + frame.bytes % SPILLWAY_MAX_FRAME_BYTES;
  frame.dscp &= 63;
  frame.ecn &= 3;
  frame.importance &= 7;
  frame.flags %= 3;
  return frame;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  spillway_port_config config;
  if (size < sizeof config) {
    return 0;
  }
  std::memcpy(&config, data, sizeof config);
  if (!spillway::dataplane::validate(config).ok()) {
    return 0;
  }
  Port port(config);
  spillway_frame frame;
  for (std::size_t at = sizeof config; at + sizeof frame <= size; at += sizeof frame) {
    std::memcpy(&frame, data + at, sizeof frame);
    if ((frame.flags & 0x80) != 0) {
      port.serve();
    } else {
      port.offer(lawful(frame), frame.bytes * 2654435761U);
    }
  }
  port.finish();
  return 0;
}
