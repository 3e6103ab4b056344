// SPDX-License-Identifier: Apache-2.0
//
// Layout of the separately checked parts of a packet: the head, then tail segments. The sizes are
// those of Spillway's packets, with room for header and checks. A plain value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace spillway::bench {

struct CheckedPart {
  std::size_t at;
  std::size_t bytes;
  std::size_t check_at;
};

struct CheckLayout {
  static constexpr std::size_t kHeader = 48;
  static constexpr std::size_t kCheck = 8;
  static constexpr std::size_t kHead = 104;  // left for planes when trimmed to 206 bytes
  static constexpr std::size_t kSegment = 512;
  static constexpr std::size_t kLeastPacket = kHeader + kCheck + kHead;

  std::size_t bytes;
  std::vector<CheckedPart> parts;  // the head first; the header precedes it

  // `bytes` must be at least kLeastPacket.
  static CheckLayout of(std::size_t bytes) {
    CheckLayout layout{bytes, {{kHeader + kCheck, kHead, kHeader}}};
    for (std::size_t at = kLeastPacket; at + kCheck < bytes; at += kSegment + kCheck) {
      const std::size_t segment = std::min(kSegment, bytes - kCheck - at);
      layout.parts.push_back({at, segment, at + segment});
    }
    return layout;
  }
};

}  // namespace spillway::bench
