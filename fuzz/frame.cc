// SPDX-License-Identifier: Apache-2.0
//
// Arbitrary bytes as an Ethernet frame, which is cut, reclassified, completed and fixed up in every
// way a switch or a receiver does it. A frame recognised as Spillway's must stay so when it is cut
// behind its header. It must keep the class it is given, and read the same with its outermost VLAN
// tag beside it. Nothing may touch memory behind the frame's end.
#include <algorithm>
#include <cstring>
#include <vector>

#include "fuzzing.h"
#include "switch/dataplane/fixup.h"
#include "switch/dataplane/station.h"
#include "switch/fabric/frame.h"

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

// Fixes the frame up as a receiver does: a fixed frame is Spillway data and needs no second fix-up.
void try_fixup(Bytes frame) {
  if (frame.empty() ||
      spillway_fixup_frame(frame.data(), frame.data() + frame.size()) != SPILLWAY_FIXUP_DONE) {
    return;
  }
  require(fabric::inspect_frame(frame).kind == fabric::FrameKind::kSpillwayData);
  require(spillway_fixup_frame(frame.data(), frame.data() + frame.size()) ==
          SPILLWAY_FIXUP_NOT_NEEDED);
}

struct Reading {
  spillway_layout layout = {};
  spillway_frame frame = {};
  spillway_station receiver = {};
  spillway_station sender = {};
};

Reading read(const Bytes& frame, const spillway_tag& beside) {
  Reading reading;
  const std::uint8_t* end = frame.data() + frame.size();
  spillway_read_frame_beside(frame.data(), end, static_cast<__u32>(frame.size()), &beside,
                             &reading.layout, &reading.frame);
  spillway_read_receiver(frame.data(), end, &beside, &reading.receiver);
  spillway_read_sender(frame.data(), end, &beside, &reading.sender);
  return reading;
}

void try_beside(Bytes frame) {
  constexpr std::size_t kTag = 2 * SPILLWAY_ADDRESS_BYTES;
  if (frame.empty()) {
    return;
  }
  const Reading inside = read(frame, {});
  if (frame.size() < SPILLWAY_ETHERNET_HEADER + SPILLWAY_VLAN_TAG ||
      spillway_is_tag(spillway_load_be16(&frame[kTag])) == 0) {
    return;
  }
  const spillway_tag tag = {static_cast<__u16>(spillway_load_be16(&frame[kTag])),
                            static_cast<__u16>(spillway_load_be16(&frame[kTag + 2]))};
  frame.erase(frame.begin() + kTag, frame.begin() + kTag + SPILLWAY_VLAN_TAG);
  const Reading outside = read(frame, tag);
  require(std::memcmp(&inside.frame, &outside.frame, sizeof(inside.frame)) == 0);
  require(std::memcmp(&inside.receiver, &outside.receiver, sizeof(inside.receiver)) == 0);
  require(std::memcmp(&inside.sender, &outside.sender, sizeof(inside.sender)) == 0);
}

}  // namespace

// The first two bytes say where to cut and which class to set.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return 0;
  }
  Bytes frame(data + 2, data + size);
  try_cut(frame, std::min<std::size_t>(data[0] * 2, frame.size()));
  try_class(frame, data[1]);
  try_beside(frame);
  try_fixup(frame);
  try_fixup(Bytes(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                                     data[0] * 2, frame.size()))));
  const fabric::FrameInfo before = fabric::inspect_frame(frame);
  fabric::complete_checksum(frame);
  require(fabric::inspect_frame(frame).kind == before.kind);
  return 0;
}
