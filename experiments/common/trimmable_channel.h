// SPDX-License-Identifier: Apache-2.0
//
// A gradient through the packets of the trimmable-gradients paper (codec/reference/trimmable.h):
// 360 values each, cut behind their heads. Metadata always arrives, as in the paper, and is not
// counted. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "common/channel.h"

namespace spillway::experiments {

struct TrimmableArrival {
  std::vector<float> values;
  experiment_delivery delivery{};
};

// Fails for an unknown code; the message names those there are.
base::Result<TrimmableArrival> send_trimmable(std::string_view code, double share,
                                              std::uint64_t seed, std::span<const float> gradient);

}  // namespace spillway::experiments
