// SPDX-License-Identifier: Apache-2.0
//
// Switches that add, and training jobs whose sums they add up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "sim/scenario/directives.h"
#include "switch/dataplane/sum_slots.h"

namespace spillway::scenario {

// ------------------------------------------------------------------ switches that add

// Switches that add sum packets (dataplane/sum_slots.h), as data, and the `aggregate` lines of a
// scenario that configure them:
//
//   aggregate slots=4096 policy=preemptive level=0 lease=100ms
//   aggregate switch=spine* level=1 slots=512 policy=static pools=2 limits=1:64,2:128
//
// `switch` is a name, or a prefix of names and a `*`; without it all switches add. `policy` is
// static, first-come or preemptive. `pools` divides a static switch's slots equally among that many
// jobs, by their numbers. `limits` are jobs and how many slots each may hold at a time. Without an
// `aggregate` line no switch adds.

inline constexpr std::uint32_t kDefaultSlots = 4096;

struct JobSlots {
  std::uint16_t job = 0;
  std::uint32_t slots = 0;
};

struct Aggregation {
  std::string place;     // for messages: "line 4"
  std::string switches;  // a name, or a prefix and '*'; empty: all
  spillway_sum_config config = {.slots = kDefaultSlots,
                                .lease_us = SPILLWAY_SUM_LEASE_US,
                                .pools = 1,
                                .policy = SPILLWAY_SUM_PREEMPTIVE,
                                .level = 0,
                                .reserved = {}};
  std::vector<JobSlots> limits;

  bool is_for(std::string_view switch_name) const;
};

base::Status read_aggregation(const Directive& directive, Aggregation& aggregation);

// "static", "first-come", "preemptive"
std::string_view policy_name(std::uint8_t policy);

// ------------------------------------------------------------------ training jobs

// A training job, as data, and the `training` lines of a scenario that define it:
//
//   training name=vgg workers=8 servers=1 layers=4 bytes=64k,128k,1MB,2MB forward=100us
//            backward=200us jitter=10% steps=20 start=1ms codec=blocks urgency=esa
//
// Its workers compute forward through the layers and back, and all-reduce each layer's gradients as
// sums (collective/summed). `bytes` is the size of a layer's gradients, 4 bytes per value;
// `forward` and `backward` are its computation times. Each is one value for all layers or a list
// with one for each, front layer first. In every step a worker is slower by a random share of up to
// `jitter`.
//
// Each job has its own hosts, assigned in the order of the lines: workers, then parameter servers.
// The servers own all sums; without servers the workers do. `codec` is levels (with `bits`) or
// blocks. With `scale=agreed` an all-reduce waits until all workers have called it, to agree on its
// scale; with `predicted` each worker sends at once. `urgency` is the rule by which switches assign
// slots: esa, or priority (the layer's alone).

enum class TrainingCodec : std::uint8_t { kLevels, kBlocks };
enum class ScaleRule : std::uint8_t { kAgreed, kPredicted };
enum class UrgencyRule : std::uint8_t { kEsa, kPriority };

struct TrainingLayer {
  base::Bytes bytes;  // of gradients, float32
  base::Duration forward;
  base::Duration backward;
};

struct Training {
  std::string name;
  std::string place;  // for messages: "line 4"
  std::uint16_t workers = 4;
  std::uint16_t servers = 0;
  std::vector<TrainingLayer> layers;  // front first
  double jitter = 0.0;
  std::uint32_t steps = 10;
  base::Instant start;
  TrainingCodec codec = TrainingCodec::kBlocks;
  std::uint8_t bits = 4;  // for levels
  ScaleRule scale = ScaleRule::kAgreed;
  UrgencyRule urgency = UrgencyRule::kEsa;

  std::uint32_t hosts() const { return std::uint32_t{workers} + servers; }
};

base::Status read_training(const Directive& directive, Training& training);

}  // namespace spillway::scenario
