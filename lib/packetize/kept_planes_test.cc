// SPDX-License-Identifier: Apache-2.0
#include "packetize/kept_planes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "codec/sample_data.h"
#include "packetize/depacketizer.h"
#include "packetize/packetizer.h"

namespace spillway::packetize {
namespace {

constexpr Job kKeptJob{.id = 5, .epoch = 6, .seed = 7};
constexpr wire::MessageId kKeptMessage{.operation = 8, .signature = 9, .piece = 1, .source = 2};

// Decodes what was kept.
std::vector<float> decoded(const PacketPlan& plan, const KeptPlanes& kept) {
  std::vector<float> values(plan.layout().tensor_length());
  Depacketizer depacketizer(plan, kKeptJob, kKeptMessage, values);
  for (std::size_t packet = 0; packet < plan.packet_count(); ++packet) {
    if (kept.bytes[packet] > 0) {
      depacketizer.add_planes(packet_header(plan, packet, kept.rows[plan.place(packet).row]),
                              kept.planes_of(plan, packet));
    }
  }
  depacketizer.finish();
  return values;
}

TEST(KeptPlanes, DecodeLaterToWhatTheyWouldHaveAtOnce) {
  const std::vector<float> tensor = codec::gaussian_values(30'000, 1);
  const PacketPlan plan = PacketPlan::make(tensor.size(), {}, {.precision = 12}).value();
  const wire::PacketAuth auth = seeded_auth(kKeptJob);
  const PacketBuffer packets =
      Packetizer(plan).packetize(tensor, kKeptJob, {.message = kKeptMessage}, auth);
  std::vector<float> at_once(tensor.size());
  Depacketizer decoding(plan, kKeptJob, kKeptMessage, at_once);
  KeptPlanes kept = KeptPlanes::make(plan);
  Depacketizer keeping(plan, kKeptJob, kKeptMessage, kept);
  base::RandomSequence random(3);
  for (std::size_t i = 0; i < 2 * packets.size(); ++i) {
    const base::ByteView packet = packets[random.next_below(packets.size())];
    const base::ByteView part =
        random.next_below(3) == 0 ? packet.first(100 + random.next_below(100)) : packet;
    EXPECT_EQ(keeping.add(part, auth), decoding.add(part, auth));
  }
  const DeliveryReport report = keeping.finish();
  const DeliveryReport expected = decoding.finish();
  EXPECT_EQ(report.whole, expected.whole);
  EXPECT_EQ(report.trimmed, expected.trimmed);
  EXPECT_EQ(report.missing, expected.missing);
  EXPECT_GT(report.missing, 0U);
  EXPECT_EQ(report.coordinates_by_planes, expected.coordinates_by_planes);
  EXPECT_TRUE(decoded(plan, kept) == at_once);
}

TEST(KeptPlanes, HaveNoRoomForMorePlanesThanThePlan) {
  const PacketPlan plan = PacketPlan::make(1'000, {}, {.precision = 8}).value();
  KeptPlanes kept = KeptPlanes::make(plan);
  Depacketizer keeping(plan, kKeptJob, kKeptMessage, kept);
  wire::OpenedPacket opened;
  opened.header = packet_header(plan, 0, {1.0F, 1});
  opened.header.stamp.message = kKeptMessage;
  opened.header.stamp.job = kKeptJob.id;
  opened.header.stamp.epoch = kKeptJob.epoch;
  opened.header.planes = 9;
  const std::vector<std::uint8_t> packet(SPILLWAY_MAX_PACKET);
  EXPECT_EQ(keeping.add(opened, packet), PacketOutcome::kInconsistent);
  EXPECT_EQ(kept.bytes[0], 0);
}

}  // namespace
}  // namespace spillway::packetize
