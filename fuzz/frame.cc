// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as an Ethernet frame, cut, reclassified, completed and fixed up in every way a switch
// or a receiver does. What is taken for Spillway's must stay that when it is cut behind its header,
// must keep the class it is given, and nothing may happen behind the frame's end.
#include <algorithm>
#include <vector>

#include "dataplane/fixup.h"
#include "fabric/frame.h"
#include "fuzzing.h"

using namespace spillway;
using spillway::fuzzing::require;

namespace {

using Bytes = std::vector<std::uint8_t>;

void try_cut(const Bytes& frame, std::size_t size) {
  Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
  const fabric::FrameInfo before = fabric::inspect_frame(frame);
  fabric::fix_lengths(cut);
  const fabric::FrameInfo after = fabric::inspect_frame(cut);
  if (before.kind != fabric::FrameKind::kOther && size >= SPILLWAY_LONGEST_HEADERS) {
    require(after.kind == before.kind);
    require(after.importance == before.importance && after.label == before.label);
  }
}

void try_class(Bytes frame, std::uint8_t tos) {
  const fabric::FrameInfo before = fabric::inspect_frame(frame);
  fabric::set_traffic_class(frame, tos >> 2, tos & 3);
  const fabric::FrameInfo after = fabric::inspect_frame(frame);
  require(after.kind == before.kind);
  if (before.kind != fabric::FrameKind::kOther) {
    require(after.dscp == tos >> 2 && after.ecn == (tos & 3));
  }
}

// As a receiver does it: what was fixed needs no fix-up, and is Spillway's data.
void try_fixup(Bytes frame) {
  if (frame.empty() ||
      spillway_fixup_frame(frame.data(), frame.data() + frame.size()) != SPILLWAY_FIXUP_DONE) {
    return;
  }
  require(fabric::inspect_frame(frame).kind == fabric::FrameKind::kSpillwayData);
  require(spillway_fixup_frame(frame.data(), frame.data() + frame.size()) ==
          SPILLWAY_FIXUP_NOT_NEEDED);
}

}  // namespace

// The first two bytes say where to cut and what class to give.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return 0;
  }
  Bytes frame(data + 2, data + size);
  try_cut(frame, std::min<std::size_t>(data[0] * 2, frame.size()));
  try_class(frame, data[1]);
  try_fixup(frame);
  try_fixup(Bytes(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                                     data[0] * 2, frame.size()))));
  const fabric::FrameInfo before = fabric::inspect_frame(frame);
  fabric::complete_checksum(frame);
  require(fabric::inspect_frame(frame).kind == before.kind);
  return 0;
}
