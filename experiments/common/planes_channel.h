// SPDX-License-Identifier: Apache-2.0
//
// A gradient through Spillway's own packets: those of the default fabric (MTU 1500, cut at 206
// bytes) and precision. The shipped depacketizer decodes them. Pure
// functions: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/plane_code.h"
#include "common/channel.h"

namespace spillway::experiments {

// The damage to a packet that is hit.
enum class Harm : std::uint8_t { kTrim, kLoss };

struct PlanesRoute {
  Harm harm = Harm::kTrim;
  double share = 0.0;
  std::uint64_t seed = 0;
  // kMinimumError leaves out what stands for missing coordinates. It shrinks those that came as
  // well, by the error that their planes leave: with all 16 that is 7e-10.
  codec::Estimate estimate = codec::Estimate::kUnbiased;
};

struct PlanesArrival {
  std::vector<float> values;
  std::vector<std::uint8_t> has_come;  // per value: something of its row came
  experiment_delivery delivery{};
};

// Fails for gradients that are longer than one message.
base::Result<PlanesArrival> send_planes(std::span<const float> gradient, const PlanesRoute& route);

}  // namespace spillway::experiments
