// SPDX-License-Identifier: Apache-2.0
//
// A training job, as data, and the `training` lines of a scenario that it is read from:
//
//   training name=vgg workers=8 servers=1 layers=4 bytes=64k,128k,1MB,2MB forward=100us
//            backward=200us jitter=10% steps=20 start=1ms code=blocks urgency=esa
//
// Its workers compute forward through the layers and back, and all-reduce what each layer's
// gradients are by sums (collective/summed). `bytes` are a layer's gradients, 4 to a value;
// `forward` and `backward` how long it takes to compute. Each is one value for all layers or a list
// with one for each, front layer first. In every step a worker is by up to `jitter` slower than
// that, by chance.
//
// Jobs have hosts of their own, in the order of their lines: workers, then parameter servers, which
// own all sums; without servers the workers do. `code` is thc (with `bits`) or blocks. With
// `scale=agreed` an all-reduce waits until all workers have called it, for its scale; with
// `predicted` each worker sends as soon as it has something. `urgency` is by what a switch tells
// who may take slots: esa, or priority, that of the layer alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "scenario/directives.h"

namespace spillway::scenario {

enum class TrainingCode : std::uint8_t { kThc, kBlocks };
enum class ScaleRule : std::uint8_t { kAgreed, kPredicted };
enum class UrgencyRule : std::uint8_t { kEsa, kPriority };

struct TrainingLayer {
  base::Bytes bytes;  // of gradients, as float32
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
  std::uint8_t bits = 4;  // of thc
  ScaleRule scale = ScaleRule::kAgreed;
  UrgencyRule urgency = UrgencyRule::kEsa;

  std::uint32_t hosts() const { return std::uint32_t{workers} + servers; }
};

base::Status read_training(const Directive& directive, Training& training);

}  // namespace spillway::scenario
