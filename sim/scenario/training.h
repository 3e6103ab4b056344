// SPDX-License-Identifier: Apache-2.0
//
// A training job, as data, and the `training` lines of a scenario that define it:
//
//   training name=vgg workers=8 servers=1 layers=4 bytes=64k,128k,1MB,2MB forward=100us
//            backward=200us jitter=10% steps=20 start=1ms code=blocks urgency=esa
//
// Its workers compute forward through the layers and back, and all-reduce each layer's gradients as
// sums (collective/summed). `bytes` is the size of a layer's gradients, 4 bytes per value;
// `forward` and `backward` are its computation times. Each is one value for all layers or a list
// with one for each, front layer first. In every step a worker is slower by a random share of up to
// `jitter`.
//
// Each job has its own hosts, assigned in the order of the lines: workers, then parameter servers.
// The servers own all sums; without servers the workers do. `code` is thc (with `bits`) or blocks.
// With `scale=agreed` an all-reduce waits until all workers have called it, to agree on its scale;
// with `predicted` each worker sends at once. `urgency` is the rule by which switches assign slots:
// esa, or priority (the layer's alone).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "sim/scenario/directives.h"

namespace spillway::scenario {

enum class TrainingCode : std::uint8_t { kThc, kBlocks };
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
  TrainingCode code = TrainingCode::kBlocks;
  std::uint8_t bits = 4;  // thc only
  ScaleRule scale = ScaleRule::kAgreed;
  UrgencyRule urgency = UrgencyRule::kEsa;

  std::uint32_t hosts() const { return std::uint32_t{workers} + servers; }
};

base::Status read_training(const Directive& directive, Training& training);

}  // namespace spillway::scenario
