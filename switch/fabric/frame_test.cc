// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/frame.h"

#include <gtest/gtest.h>

#include "switch/fabric/frame_testing.h"

namespace spillway::fabric {
namespace {

struct Shape {
  bool ipv6;
  bool vlan;
  bool options;
  bool service_vlan = false;
};

class Frames : public testing::TestWithParam<Shape> {
 protected:
  FrameOptions options(Bytes payload, std::uint8_t tos = 0) const {
    FrameOptions made;
    made.ipv6 = GetParam().ipv6;
    made.vlan = GetParam().vlan;
    made.options = GetParam().options;
    made.service_vlan = GetParam().service_vlan;
    made.tos = tos;
    made.payload = std::move(payload);
    return made;
  }
};

INSTANTIATE_TEST_SUITE_P(Shapes, Frames,
                         testing::Values(Shape{false, false, false}, Shape{false, true, false},
                                         Shape{false, false, true}, Shape{true, false, false},
                                         Shape{true, true, false}, Shape{false, true, true, true},
                                         Shape{true, true, false, true}));

TEST_P(Frames, KnowsSpillwayDataAndItsService) {
  const FrameInfo info = inspect_frame(make_frame(options(data_payload(800), 41 << 2 | 2)).bytes);
  EXPECT_EQ(info.kind, FrameKind::kSpillwayData);
  EXPECT_EQ(info.dscp, 41);
  EXPECT_EQ(info.ecn, 2);
  EXPECT_EQ(info.importance, 5);
  EXPECT_EQ(info.priority, 3);
}

TEST_P(Frames, KnowsControlAndWhatIsNeither) {
  EXPECT_EQ(inspect_frame(make_frame(options(control_payload())).bytes).kind,
            FrameKind::kSpillwayControl);
  EXPECT_EQ(inspect_frame(make_frame(options(Bytes(800, 0x11))).bytes).kind, FrameKind::kOther);
  EXPECT_EQ(inspect_frame(make_frame(options({})).bytes).kind, FrameKind::kOther);
  FrameOptions tcp = options(data_payload(800));
  tcp.protocol = 6;
  EXPECT_EQ(inspect_frame(make_frame(tcp).bytes).kind, FrameKind::kOther);
}

TEST_P(Frames, AFlowHasOneLabelAndAnotherFlowAnother) {
  FrameOptions flow = options(data_payload(800));
  const std::uint32_t label = inspect_frame(make_frame(flow).bytes).label;
  flow.payload = data_payload(400);
  flow.tos = 3;
  EXPECT_EQ(inspect_frame(make_frame(flow).bytes).label, label);
  flow.source_port = 4001;
  EXPECT_NE(inspect_frame(make_frame(flow).bytes).label, label);
}

TEST_P(Frames, ACutFrameIsAWholeOneAgain) {
  TestFrame frame = make_frame(options(data_payload(800)));
  complete_checksum(frame.bytes);
  frame.bytes.resize(206);
  fix_lengths(frame.bytes);
  EXPECT_EQ(inspect_frame(frame.bytes).kind, FrameKind::kSpillwayData);
  EXPECT_EQ(be_at(frame.bytes, frame.transport + 4), 206 - frame.transport);
  if (frame.ipv6) {
    EXPECT_EQ(be_at(frame.bytes, frame.ip + 4), 206 - frame.transport);
    EXPECT_EQ(frame.transport_sum(), 0xFFFF);
  } else {
    EXPECT_EQ(be_at(frame.bytes, frame.ip + 2), 206 - frame.ip);
    EXPECT_EQ(frame.ip_sum(), 0xFFFF);
    EXPECT_EQ(be_at(frame.bytes, frame.transport + 6), 0);
  }
}

TEST_P(Frames, TheTrafficClassChangesAndNothingElse) {
  const TestFrame before = make_frame(options(data_payload(100), 1 << 2 | 2));
  for (unsigned tos = 0; tos < 256; ++tos) {
    TestFrame frame = before;
    set_traffic_class(frame.bytes, static_cast<std::uint8_t>(tos >> 2),
                      static_cast<std::uint8_t>(tos & 3));
    const FrameInfo info = inspect_frame(frame.bytes);
    EXPECT_EQ(info.dscp << 2 | info.ecn, tos);
    if (!frame.ipv6) {
      EXPECT_EQ(frame.ip_sum(), 0xFFFF) << tos;
    }
    set_traffic_class(frame.bytes, 1, 2);
    EXPECT_EQ(frame.bytes, before.bytes);
  }
}

TEST_P(Frames, ChecksumsThatWereLeftToACardAreCompleted) {
  for (const std::uint8_t protocol : {17, 6}) {
    for (const std::size_t size : {0, 1, 2, 3, 100, 1401}) {
      FrameOptions made = options(Bytes(size, 0x5A));
      made.protocol = protocol;
      TestFrame frame = make_frame(made);
      complete_checksum(frame.bytes);
      EXPECT_EQ(frame.transport_sum(), 0xFFFF) << int{protocol} << " " << size;
    }
  }
}

TEST(Frame, AWrongIpv4ChecksumStaysWrong) {
  TestFrame frame = make_frame({.payload = data_payload(100)});
  frame.bytes[frame.ip + 10] ^= 0x40;
  set_traffic_class(frame.bytes, 10, 1);
  EXPECT_NE(frame.ip_sum(), 0xFFFF);
}

TEST(Frame, FragmentsAndExtensionHeadersAreNotSpillways) {
  EXPECT_EQ(
      inspect_frame(make_frame({.fragment = 0x2000, .payload = data_payload(800)}).bytes).kind,
      FrameKind::kOther);
  EXPECT_EQ(inspect_frame(make_frame({.fragment = 1, .payload = data_payload(800)}).bytes).kind,
            FrameKind::kOther);
  EXPECT_EQ(
      inspect_frame(make_frame({.ipv6 = true, .protocol = 0, .payload = data_payload(800)}).bytes)
          .kind,
      FrameKind::kOther);
}

TEST(Frame, ALengthThatLiesIsNotBelieved) {
  TestFrame frame = make_frame({.payload = data_payload(800)});
  frame.bytes[frame.transport + 5] ^= 1;
  EXPECT_EQ(inspect_frame(frame.bytes).kind, FrameKind::kOther);
  frame = make_frame({.payload = data_payload(800)});
  frame.bytes.pop_back();
  EXPECT_EQ(inspect_frame(frame.bytes).kind, FrameKind::kOther);
}

TEST(Frame, EveryPrefixOfAFrameIsSurvivedAndNotTakenForTheWhole) {
  for (const bool ipv6 : {false, true}) {
    const TestFrame whole =
        make_frame({.ipv6 = ipv6, .vlan = true, .service_vlan = true, .payload = data_payload(64)});
    for (std::size_t size = 0; size < whole.bytes.size(); ++size) {
      Bytes prefix(whole.bytes.begin(), whole.bytes.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(inspect_frame(prefix).kind, FrameKind::kOther);
      complete_checksum(prefix);
      set_traffic_class(prefix, 63, 3);
      fix_lengths(prefix);
      EXPECT_EQ(prefix.size(), size);
    }
  }
}

}  // namespace
}  // namespace spillway::fabric
