// SPDX-License-Identifier: Apache-2.0
#include "switch/dataplane/fixup.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace spillway::dataplane {
namespace {

using Frame = std::vector<std::uint8_t>;

constexpr std::size_t kPayload = 1300;

struct Shape {
  bool is_ipv6 = false;
  unsigned option_words = 0;
};

void append_be16(Frame& frame, std::size_t value) {
  frame.push_back(static_cast<std::uint8_t>(value >> 8));
  frame.push_back(static_cast<std::uint8_t>(value));
}

Frame data_frame(const Shape& shape) {
  Frame frame(12, 2);
  const std::size_t udp = SPILLWAY_UDP_HEADER + kPayload;
  if (shape.is_ipv6) {
    append_be16(frame, SPILLWAY_ETHERTYPE_IPV6);
    frame.insert(frame.end(), {0x60, 0, 0, 0});
    append_be16(frame, udp);
    frame.insert(frame.end(), {17, 64});
    frame.resize(frame.size() + 32, 7);
  } else {
    const std::size_t header = 20 + 4 * shape.option_words;
    append_be16(frame, SPILLWAY_ETHERTYPE_IPV4);
    frame.insert(frame.end(), {static_cast<std::uint8_t>(0x40 | header / 4), 0});
    append_be16(frame, header + udp);
    frame.insert(frame.end(), {0, 1, 0x40, 0, 64, 17, 0xAA, 0xAA});
    frame.resize(SPILLWAY_ETHERNET_HEADER + header, 1);
  }
  append_be16(frame, 7077);
  append_be16(frame, 7077);
  append_be16(frame, udp);
  append_be16(frame, 0xBEEF);
  spillway_planes_header header = {};
  header.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_PLANES;
  header.row_log2 = 15;
  header.planes = 1 << 6 | 16;
  header.quanta = 22;
  header.head_words = 20;
  header.scale = 0x3F800000;
  const std::size_t at = frame.size();
  frame.resize(at + kPayload, 0x5A);
  std::memcpy(&frame[at], &header, sizeof(header));
  return frame;
}

int fix_up(Frame& frame) {
  return spillway_fixup_frame(frame.data(), frame.data() + frame.size());
}

// Expects a frame that a receiver's kernel accepts.
void expect_sound(const Frame& frame) {
  spillway_layout layout;
  spillway_frame seen;
  spillway_read_frame(frame.data(), frame.data() + frame.size(),
                      static_cast<std::uint32_t>(frame.size()), &layout, &seen);
  EXPECT_EQ(seen.flags, SPILLWAY_FRAME_TRIMMABLE);
  EXPECT_EQ(layout.end, frame.size());
  if (layout.is_ipv6 != 0) {
    EXPECT_EQ(
        spillway_transport_checksum(frame.data(), frame.data() + frame.size(), &layout,
                                    static_cast<std::uint32_t>(frame.size()) - layout.transport),
        0U);
  } else {
    std::uint64_t sum = 0;
    for (std::size_t i = layout.ip; i < layout.transport; i += 2) {
      sum += spillway_load_word(&frame[i]);
    }
    EXPECT_EQ(spillway_fold(sum), 0xFFFFU);
    EXPECT_EQ(spillway_load_be16(&frame[layout.transport + 6U]), 0U);
  }
}

TEST(Fixup, MakesEveryLengthAgreeAgain) {
  for (const Shape& shape : {Shape{false, 0}, Shape{false, 3}, Shape{false, 10}, Shape{true, 0}}) {
    for (const std::size_t cut : {206U, 207U, 256U, 1024U}) {
      for (const bool ip_is_right : {false, true}) {
        Frame frame = data_frame(shape);
        frame.resize(cut);
        if (ip_is_right) {
          const std::size_t field = SPILLWAY_ETHERNET_HEADER + (shape.is_ipv6 ? 4U : 2U);
          const std::size_t gone = shape.is_ipv6 ? 54 : 14;
          spillway_store_be16(&frame[field], static_cast<std::uint32_t>(cut - gone));
        }
        EXPECT_EQ(fix_up(frame), SPILLWAY_FIXUP_DONE);
        expect_sound(frame);
        EXPECT_EQ(fix_up(frame), SPILLWAY_FIXUP_NOT_NEEDED);
      }
    }
  }
}

TEST(Fixup, LeavesEverythingElseAlone) {
  for (const bool is_ipv6 : {false, true}) {
    const Frame whole = data_frame({is_ipv6, 0});
    std::vector<Frame> frames = {whole, Frame(whole.begin(), whole.begin() + 60), Frame(10)};
    Frame others = whole;
    others[is_ipv6 ? 62 : 42] = 0x77;  // not Spillway's version
    others.resize(206);
    frames.push_back(others);
    Frame padded = whole;
    padded.resize(whole.size() + 8);
    frames.push_back(padded);
    for (const Frame& frame : frames) {
      Frame copy = frame;
      EXPECT_EQ(fix_up(copy), SPILLWAY_FIXUP_NOT_NEEDED);
      EXPECT_EQ(copy, frame);
    }
  }
}

TEST(Fixup, RefusesWhatNoSwitchCuts) {
  Frame frame = data_frame({});
  frame.resize(frame.size() + 4000);
  spillway_store_be16(&frame[16], 6000);
  spillway_store_be16(&frame[38], 5980);
  frame.resize(SPILLWAY_MAX_TRIM_BYTES + 1);
  const Frame before = frame;
  EXPECT_EQ(fix_up(frame), SPILLWAY_FIXUP_REFUSED);
  EXPECT_EQ(frame, before);
}

}  // namespace
}  // namespace spillway::dataplane
