// SPDX-License-Identifier: Apache-2.0
//
// Preset networks, as scenario texts (sim/scenario/scenario.h). The first line of each is a comment
// that describes it; the second names the real network that it stands for. Callers may change any
// part.
//
// Most presets are datacentres with time slowed down: rates are divided and delays multiplied by
// the same factor, and queues keep their bytes. So the bandwidth-delay product in packets, and the
// queues relative to it, are those of 100 Gb/s, while two cores can emulate the resulting rate on
// time. Switches trim to 384 bytes (2048 with jumbo frames), because one bit of every value then
// survives in a full packet of the default precision. Uplinks are given as shares of the hosts'
// rate, so that their ratio stays the same at any rate.
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
  // The factor by which time runs slower than in that network; 1: not slower.
  double slowdown() const;
  // The text without lines about hosts that a network of `hosts` hosts does not have.
  std::string text_for(std::uint32_t hosts) const;
};

std::span<const Preset> presets();

// Fails for unknown names; the error lists the known ones.
base::Result<Preset> find_preset(std::string_view name);

}  // namespace spillway::lab
