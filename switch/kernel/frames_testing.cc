// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/frames_testing.h"

#include <algorithm>

#include "switch/dataplane/frame.h"
#include "wire/packet.h"

namespace spillway::kernel {
namespace {

unsigned below(std::mt19937& random, unsigned limit) {
  return static_cast<unsigned>(random() % limit);
}

std::vector<std::uint8_t> control_payload(std::mt19937& random) {
  std::vector<std::uint8_t> payload(sizeof(spillway_control_header) + below(random, 60));
  payload[0] = static_cast<std::uint8_t>(SPILLWAY_WIRE_VERSION << 4 | (2 + below(random, 5)));
  payload[1] = static_cast<std::uint8_t>(below(random, 16));
  return payload;
}

std::vector<std::uint8_t> random_payload(std::mt19937& random) {
  switch (below(random, 6)) {
    case 0:
      return control_payload(random);
    case 1: {
      std::vector<std::uint8_t> noise(below(random, 1400));
      std::generate(noise.begin(), noise.end(),
                    [&random] { return static_cast<std::uint8_t>(random()); });
      return noise;
    }
    default:
      return data_payload(90 + below(random, 1350), static_cast<std::uint8_t>(below(random, 8)));
  }
}

// Usually no tags, else up to one more than a switch understands.
std::vector<std::uint16_t> random_tags(std::mt19937& random) {
  std::vector<std::uint16_t> tags(below(random, 2) == 0 ? 0 : below(random, SPILLWAY_MAX_TAGS + 2));
  for (std::uint16_t& tag : tags) {
    tag = below(random, 2) == 0 ? SPILLWAY_ETHERTYPE_VLAN : SPILLWAY_ETHERTYPE_SERVICE_VLAN;
  }
  return tags;
}

// Damages anything but the receiver's address and the outermost tag.
void damage(std::mt19937& random, std::size_t first, Frame& frame) {
  for (unsigned i = 0; i < 1 + below(random, 4); ++i) {
    // Mostly headers, because decisions are made there.
    const std::size_t reach =
        below(random, 4) == 0 ? frame.size() : std::min<std::size_t>(frame.size(), 120);
    if (reach > first) {
      frame[first + below(random, static_cast<unsigned>(reach - first))] =
          static_cast<std::uint8_t>(random());
    }
  }
  if (below(random, 3) == 0) {
    // The kernel runs no program on a frame without payload.
    const std::size_t cut = below(random, static_cast<unsigned>(frame.size() + 1));
    frame.resize(std::max({first, cut, std::size_t{SPILLWAY_ETHERNET_HEADER + 1}}));
  }
  if (below(random, 6) == 0) {
    frame.resize(frame.size() + below(random, 40));
  }
}

}  // namespace

Frame random_frame(std::mt19937& random) {
  FrameShape shape;
  shape.is_ipv6 = below(random, 2) == 0;
  shape.tags = random_tags(random);
  shape.option_words = below(random, 5) == 0 ? below(random, 11) : 0;
  shape.traffic_class = static_cast<std::uint8_t>(random());
  Frame frame = frame_of(shape, random_payload(random));
  if (below(random, 3) == 0) {
    damage(random, shape.tags.empty() ? 12 : 16, frame);
  }
  return frame;
}

}  // namespace spillway::kernel
