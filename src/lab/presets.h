// SPDX-License-Identifier: Apache-2.0
//
// Networks worth trying, as scenario texts (src/scenario/scenario.h). The first line of each is a
// comment that says what it is, the second which real network it stands for. Callers may change any
// part of one.
//
// Most are datacentres with time slowed down: rates are divided and delays multiplied by the same
// factor, queues keep their bytes. The bandwidth-delay product in packets, and queues over it, are
// those of 100 Gb/s, at a rate that two cores emulate on time. Switches trim to 384 bytes (2048
// with jumbo frames): packets of the default precision are full, and one bit of every value
// survives. Uplinks are shares of the hosts' rate, so that a network keeps its character at any
// rate.
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
  // The real network, from the second line.
  std::string_view stands_for() const;
  // Without the lines about hosts that a network of so many does not have.
  std::string text_for(std::uint32_t hosts) const;
};

std::span<const Preset> presets();

// Unknown names get an error that lists the known ones.
base::Result<Preset> find_preset(std::string_view name);

}  // namespace spillway::lab
