// SPDX-License-Identifier: Apache-2.0
#include "packetize/packetizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "codec/sample_data.h"
#include "packetize/depacketizer.h"
#include "packetize/packet_plan.h"
#include "wire/packet.h"

namespace spillway::packetize {
namespace {

// ------------------------------------------------------------------ plans

PacketPlan plan_for(std::size_t length, unsigned mtu, unsigned trim, unsigned planes = 16) {
  return PacketPlan::make(length, {.mtu = mtu, .trim_bytes = trim}, {.precision = planes}).value();
}

TEST(PacketPlan, FillsTheMtuWhereTheTrimSizeAllows) {
  const PacketPlan plan = plan_for(1 << 20, 1500, 256);
  EXPECT_EQ(plan.coordinates_per_packet(), 704U);
  EXPECT_EQ(plan.packets_in(0), 12U);
  EXPECT_LE(plan.max_packet_size(), 1472U);
  EXPECT_GT(plan.max_packet_size(), 1400U);
}

TEST(PacketPlan, HeadSurvivesTheWorstCutAndHoldsAWholePlane) {
  for (const unsigned mtu : {576U, 1280U, 1500U, 4096U, 9000U}) {
    for (const unsigned trim : {110U, 128U, 206U, 256U, 512U, 1024U}) {
      for (const unsigned planes : {8U, 12U, 16U, 32U}) {
        const PacketPlan plan = plan_for(100'000, mtu, trim, planes);
        const std::size_t count = plan.coordinates_per_packet();
        const std::size_t head = plan.head_bytes(count);
        EXPECT_GE(head, count / 8) << mtu << " " << trim;
        EXPECT_LE(14 + 28 + 52 + head, trim - 4) << mtu << " " << trim;
        EXPECT_LE(plan.max_packet_size() + 28, mtu);
      }
    }
  }
}

TEST(PacketPlan, SmallTrimSizesCapTheCoordinatesWhateverTheMtu) {
  EXPECT_EQ(plan_for(1 << 20, 9000, 206).coordinates_per_packet(), 832U);
  EXPECT_EQ(plan_for(1 << 20, 9000, 128).coordinates_per_packet(), 224U);
}

// A row of 2^13 needs as many packets as if all but the last were full.
TEST(PacketPlan, PacketsOfARowAreAlikeWhereQuantaAllowIt) {
  const PacketPlan trimmed = plan_for(1 << 20, 1500, 384, 5);
  EXPECT_EQ(trimmed.packets_in(0), 4U);
  EXPECT_EQ(trimmed.place(0).count, trimmed.place(3).count);
  EXPECT_EQ(plan_for(1 << 20, 9000, 0).coordinates_per_packet(), 4096U);
  for (const unsigned precision : {9U, 16U}) {
    const PacketPlan plan = plan_for(1 << 20, 9000, 0, precision);
    EXPECT_EQ(plan.packets_in(0), 2U) << precision;
    EXPECT_EQ(plan.place(0).count, plan.place(1).count) << precision;
  }
}

TEST(PacketPlan, TailsHaveSeveralChecksOnlyWhereCutsAreAtUnknownPlaces) {
  EXPECT_FALSE(plan_for(1 << 20, 1500, 206).has_segmented_tails());
  EXPECT_TRUE(plan_for(1 << 20, 1500, 0).has_segmented_tails());
  const PacketPlan streamed = PacketPlan::make(1 << 20, PacketLimits::on_stream(), {}).value();
  EXPECT_FALSE(streamed.has_segmented_tails());
}

TEST(PacketPlan, LongPacketsHoldWholeRows) {
  for (const unsigned precision : {1U, 5U, 8U}) {
    const PacketPlan plan = plan_for(1 << 20, 9000, 0, precision);
    EXPECT_EQ(plan.packets_in(0), 1U) << precision;
    EXPECT_EQ(plan.packet_count(), plan.layout().row_count()) << precision;
    EXPECT_LE(plan.max_packet_size(), 8972U) << precision;
  }
}

TEST(PacketPlan, PlacesCoverEveryCoordinateOnce) {
  const PacketPlan plan = plan_for(70'001, 1500, 206);
  std::size_t packet = 0;
  for (std::size_t row = 0; row < plan.layout().row_count(); ++row) {
    std::size_t expected_first = 0;
    for (std::size_t slot = 0; slot < plan.packets_in(row); ++slot, ++packet) {
      const PacketPlace place = plan.place(packet);
      EXPECT_EQ(place.row, row);
      EXPECT_EQ(place.slot, slot);
      EXPECT_EQ(place.first, expected_first);
      expected_first += place.count;
    }
    EXPECT_EQ(expected_first, plan.layout().row(row).length());
  }
  EXPECT_EQ(packet, plan.packet_count());
}

TEST(PacketPlan, AnEmptyTensorHasNoPackets) {
  EXPECT_EQ(plan_for(0, 1500, 206).packet_count(), 0U);
  EXPECT_EQ(plan_for(0, 1500, 206).wire_bytes(), 0U);
}

TEST(PacketPlan, RefusalsSayWhatWouldDo) {
  const auto message = [](const PacketLimits& limits, const Encoding& encoding,
                          std::size_t length) {
    const auto plan = PacketPlan::make(length, limits, encoding);
    return plan.ok() ? std::string("ok") : plan.status().message();
  };
  EXPECT_NE(message({.trim_bytes = 96}, {}, 10).find("smallest that works here is 102"),
            std::string::npos);
  EXPECT_EQ(message({.trim_bytes = 102}, {}, 10), "ok");
  EXPECT_NE(message({.mtu = 100}, {}, 10).find("MTU 100"), std::string::npos);
  EXPECT_NE(message({}, {.precision = 33}, 10).find("outside 1..32"), std::string::npos);
  EXPECT_NE(message({}, {.row_log2 = 16}, 10).find("2^16"), std::string::npos);
  EXPECT_NE(message({}, {}, 1'000'000'000).find("split the tensor"), std::string::npos);
}

TEST(PacketPlan, TinyPacketsGetShorterRows) {
  const auto plan =
      PacketPlan::make(100'000, {.trim_bytes = 98, .trim_slack_bytes = 0}, {.row_log2 = 15});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->coordinates_per_packet(), 32U);
  EXPECT_EQ(plan->layout().row_log2(), 13U);  // 256 packets of 32
}

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

// ------------------------------------------------------------------ packets

// Which packets may be dropped first, and that estimates then stay unbiased.

constexpr std::size_t kRow = std::size_t{1} << kDefaultRowLog2;

PacketPlan plan_of(std::size_t rows, unsigned precision = 16) {
  return PacketPlan::make(rows * kRow, {.trim_bytes = 0}, {.precision = precision}).value();
}

bool is_expendable(std::uint8_t importance) {
  return importance < SPILLWAY_IMPORTANCE_MARKED;
}

std::vector<std::size_t> expendable_by_row(const PacketPlan& plan,
                                           const std::vector<std::uint8_t>& importance) {
  std::vector<std::size_t> rows(plan.layout().row_count());
  for (std::size_t packet = 0; packet < importance.size(); ++packet) {
    rows[plan.place(packet).row] += is_expendable(importance[packet]) ? 1 : 0;
  }
  return rows;
}

TEST(Importance, RowsThatAreAlikeShareWhatMayBeLost) {
  const PacketPlan plan = plan_of(8);
  const auto importance = importance_by_energy(plan, std::vector<float>(8, 2.0F), 200'000);
  const auto rows = expendable_by_row(plan, importance);
  const auto [fewest, most] = std::minmax_element(rows.begin(), rows.end());
  EXPECT_LE(*most - *fewest, 1U);
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), std::size_t{0}), plan.packet_count() / 5);
}

TEST(Importance, RowsWithLittleInThemGiveFirst) {
  const PacketPlan plan = plan_of(4);
  const auto importance = importance_by_energy(plan, std::vector<float>{1, 0.1F, 1, 0.1F}, 100'000);
  const auto rows = expendable_by_row(plan, importance);
  EXPECT_EQ(rows[0] + rows[2], 0U);
  EXPECT_EQ(rows[1] + rows[3], plan.packet_count() / 10);
  // Among the others, packets of rich rows are repaired first.
  EXPECT_GT(importance[plan.first_packet(0)], importance[plan.first_packet(1)]);
}

// The share a row keeps follows the root of its energy: stronger rows keep more.
TEST(Importance, NoRowGivesMoreThanAThirdAndStrongerRowsGiveLess) {
  const PacketPlan plan = plan_of(3);
  const auto rows = expendable_by_row(
      plan, importance_by_energy(plan, std::vector<float>{0.8F, 1.0F, 0.9F}, 200'000));
  EXPECT_GT(rows[0], rows[2]);
  EXPECT_GT(rows[2], rows[1]);
  const auto all = expendable_by_row(
      plan, importance_by_energy(plan, std::vector<float>{0.0F, 1.0F, 0.8F}, 1'000'000));
  for (std::size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(all[row], plan.packets_in(row) / 3);
  }
}

TEST(Importance, WhatIsNotFiniteIsNeverGivenAway) {
  const PacketPlan plan = plan_of(3);
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const auto rows = expendable_by_row(
        plan, importance_by_energy(plan, std::vector<float>{odd, 1.0F, 1.0F}, 1'000'000));
    EXPECT_EQ(rows[0], 0U);
    EXPECT_GT(rows[1], 0U);
  }
}

TEST(Importance, OfAShortRowOnePacketMustArriveAndTheShortestAreAlike) {
  const PacketPlan three = plan_of(2, /*precision=*/4);
  ASSERT_EQ(three.packets_in(0), kSafePackets);
  const auto importance = importance_by_energy(three, std::vector<float>{1.0F, 0.01F}, 200'000);
  EXPECT_EQ(importance[three.first_packet(1)], SPILLWAY_IMPORTANCE_REQUIRED);
  EXPECT_EQ(expendable_by_row(three, importance)[1], 1U);
  EXPECT_EQ(std::count(importance.begin(), importance.end(), SPILLWAY_IMPORTANCE_REQUIRED), 1);

  const PacketPlan two = plan_of(2, /*precision=*/2);
  ASSERT_LT(two.packets_in(0), kSafePackets);
  const auto alike = importance_by_energy(two, std::vector<float>{1.0F, 0.01F}, 900'000);
  EXPECT_EQ(std::count(alike.begin(), alike.end(), SPILLWAY_IMPORTANCE_MARKED),
            static_cast<std::ptrdiff_t>(two.packet_count()));
}

TEST(Importance, WithNothingToLoseAllAreAlike) {
  const PacketPlan plan = plan_of(2);
  const auto importance = importance_by_energy(plan, std::vector<float>{1.0F, 0.01F}, 0);
  EXPECT_EQ(std::count(importance.begin(), importance.end(), SPILLWAY_IMPORTANCE_MARKED),
            static_cast<std::ptrdiff_t>(plan.packet_count()));
}

// ---- On average

constexpr std::size_t kRows = 8;
constexpr int kMessages = 60;

// The projection of the mean estimate onto the truth: 1 without bias.
double gain(std::span<const double> mean, std::span<const float> truth) {
  double dot = 0.0;
  double energy = 0.0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    dot += mean[i] * static_cast<double>(truth[i]);
    energy += static_cast<double>(truth[i]) * static_cast<double>(truth[i]);
  }
  return dot / energy;
}

// Sends a tensor, half of whose rows have little energy, through a network that drops nine in ten
// expendable packets and one in twenty of the others. Collects the mean of the estimates, and what
// it would be if the whole message were rescaled alike.
struct SelectiveLoss {
  SelectiveLoss() : plan(plan_of(kRows)), truth(codec::gaussian_values(kRows * kRow, 5)) {
    for (std::size_t i = 0; i < truth.size(); ++i) {
      truth[i] *= i / kRow % 2 == 0 ? 1.0F : 0.3F;
    }
    ours.resize(truth.size());
    naive.resize(truth.size());
    for (int message = 0; message < kMessages; ++message) {
      send(static_cast<std::uint64_t>(message));
    }
  }

  void send(std::uint64_t number) {
    const Job job{.id = 1, .seed = 7};
    const wire::MessageId message{.operation = number};
    Packetizer packetizer(plan);
    std::vector<wire::DataHeader> headers;
    std::vector<std::vector<std::uint8_t>> planes;
    std::vector<float> scales;
    for (std::size_t row = 0; row < kRows; ++row) {
      packetizer.visit_row(truth, row, job, {.message = message},
                           [&](const wire::DataHeader& header, base::ByteView bytes) {
                             headers.push_back(header);
                             planes.emplace_back(bytes.begin(), bytes.end());
                           });
      scales.push_back(headers.back().scale);
    }
    const auto importance = importance_by_energy(plan, scales, 160'000);
    std::vector<float> values(truth.size());
    Depacketizer receiver(plan, job, message, values);
    std::vector<double> arrived(kRows);  // packets
    for (std::size_t packet = 0; packet < headers.size(); ++packet) {
      const double loss = importance[packet] == SPILLWAY_IMPORTANCE_REQUIRED ? 0.0
                          : is_expendable(importance[packet])                ? 0.9
                                                                             : 0.05;
      if (random.next_unit() >= loss) {
        receiver.add_planes(headers[packet], planes[packet]);
        arrived[plan.place(packet).row] += static_cast<double>(plan.place(packet).count);
      }
    }
    receiver.finish();
    add(values, arrived);
  }

  void add(std::span<const float> values, std::span<const double> arrived) {
    const double all = std::accumulate(arrived.begin(), arrived.end(), 0.0);
    const double of_message = static_cast<double>(kRows * kRow) / all;
    for (std::size_t i = 0; i < values.size(); ++i) {
      // `values` is already rescaled by the share of the row that arrived; undo that.
      const double of_row = arrived[i / kRow] / static_cast<double>(kRow);
      ours[i] += static_cast<double>(values[i]) / kMessages;
      naive[i] += static_cast<double>(values[i]) * of_row * of_message / kMessages;
    }
  }

  double gain_of(std::span<const double> mean, std::size_t row) const {
    return gain(mean.subspan(row * kRow, kRow), std::span(truth).subspan(row * kRow, kRow));
  }

  PacketPlan plan;
  std::vector<float> truth;
  base::RandomSequence random{11};
  std::vector<double> ours;
  std::vector<double> naive;
};

TEST(Importance, EstimatesAreUnbiasedRowByRowWhereScalingAMessageIsNot) {
  const SelectiveLoss loss;
  for (std::size_t row = 0; row < kRows; ++row) {
    EXPECT_NEAR(loss.gain_of(loss.ours, row), 1.0, 0.01) << row;
    if (row % 2 == 0) {
      EXPECT_GT(loss.gain_of(loss.naive, row), 1.1) << row;
    } else {
      EXPECT_LT(loss.gain_of(loss.naive, row), 0.9) << row;
    }
  }
}

}  // namespace
}  // namespace spillway::packetize
