// SPDX-License-Identifier: Apache-2.0
//
// Networks worth trying, as scenario texts (src/scenario/scenario.h). Each opens with a comment
// that says what it is. Whoever starts from one may change any part of it. Switches trim to 384
// bytes (2048 with jumbo frames): packets of the default precision are full, and one bit of every
// value survives. Uplinks are shares of the hosts' rate, so that a network keeps its character
// at any rate.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace spillway::lab {

struct Preset {
  std::string_view name;
  std::string_view text;

  // Its first line, without the comment sign.
  std::string_view summary() const;
  // Without the lines about hosts that a network of so many does not have.
  std::string text_for(std::uint32_t hosts) const;
};

std::span<const Preset> presets();

// Unknown names get an error that lists the known ones.
base::Result<Preset> find_preset(std::string_view name);

}  // namespace spillway::lab
