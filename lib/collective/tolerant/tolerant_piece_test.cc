// SPDX-License-Identifier: Apache-2.0
//
// Tests how an owner adds up contributions, some whole and one partial, and what its receipts say.
#include "collective/tolerant/tolerant_piece.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "codec/sample_data.h"
#include "wire/data_packet.h"

namespace spillway::collective {
namespace {

constexpr std::size_t kPieceValues = 4 * 8192;
constexpr Group kGroup{.rank = 0, .world = 3};

// Rank 0 of three owns the only piece; all have ones. Rank 1's contribution comes whole.
class ThreeRanks {
 public:
  explicit ThreeRanks(std::uint64_t feedback_tensor = 0) {
    operation_.tolerance = Tolerance{.feedback_tensor = feedback_tensor};
    config_.group = kGroup;
    piece_.result = std::make_unique<PlaneSource>(plan_);
    piece_.contributions.resize(3);
    piece_.was_cut.resize(3, false);
    deliver(1, 1.0);
  }

  // Delivers the first packets of every row.
  void deliver(std::uint16_t from, double share) {
    const wire::MessageId message{.source = from};
    PlaneSource source(plan_);
    source.encode(ones_, config_.job, message);
    auto sink = std::make_unique<PlaneSink>(plan_, config_.job, message);
    std::vector<std::uint8_t> bytes(plan_.max_packet_size());
    for (std::size_t packet = 0; packet < plan_.packet_count(); ++packet) {
      const packetize::PacketPlace place = plan_.place(packet);
      const auto in_row = static_cast<double>(plan_.packets_in(place.row));
      if (static_cast<double>(place.slot) >= share * in_row) {
        continue;
      }
      const std::size_t length = source.write(
          {.message = message, .packet = static_cast<std::uint16_t>(packet)}, auth_, bytes);
      wire::OpenedPacket opened;
      const base::ByteView written = base::ByteView(bytes).first(length);
      ASSERT_EQ(wire::open_data_packet(written, auth_, opened), wire::PacketFault::kNone);
      ASSERT_GT(sink->take(opened, written), 0U);
    }
    piece_.contributions[from] = std::move(sink);
  }
  void cut(std::uint16_t from) { piece_.was_cut[from] = true; }

  double error_of_mean() {
    EXPECT_TRUE(add_up_contributions({operation_, config_, {}},
                                     {.source = 0, .phase = wire::Phase::kGather}, piece_)
                    .ok());
    return codec::nmse(mean_, ones_);
  }
  unsigned contributors() const { return piece_.receipt.contributors; }
  // The receipt that a rank gets.
  Receipt receipt_of(std::uint16_t rank) const {
    return parse_receipt(piece_.receipts[rank], {plan_.layout().row_count(), plan_.packet_count()},
                         kGroup.world);
  }
  std::size_t packets() const { return plan_.packet_count(); }

 private:
  packetize::PacketPlan plan_ = packetize::PacketPlan::make(kPieceValues, {}, {}).value();
  wire::PacketAuth auth_ = packetize::seeded_auth({.seed = 1});
  std::vector<float> ones_ = std::vector<float>(kPieceValues, 1.0F);
  std::vector<float> mean_ = std::vector<float>(kPieceValues);
  Operation operation_{.op = ReduceOp::kAverage,
                       .count = kPieceValues,
                       .input = ones_.data(),
                       .output = mean_.data()};
  RunConfig config_;
  PieceState piece_{{.extent = {0, kPieceValues}, .owner = 0}, kGroup};
};

TEST(TolerantPiece, LittleOfACutContributionDoesNotCount) {
  ThreeRanks ranks;
  ranks.deliver(2, 0.2);
  ranks.cut(2);
  EXPECT_LT(ranks.error_of_mean(), 1e-6);
  EXPECT_EQ(ranks.contributors(), 2U);
}

TEST(TolerantPiece, MostOfACutContributionCounts) {
  ThreeRanks ranks;
  ranks.deliver(2, 0.8);
  ranks.cut(2);
  const double error = ranks.error_of_mean();
  EXPECT_GT(error, 0.01);
  EXPECT_LT(error, 1.0 / 9.0);  // at half, (1 - s) / s = 1 of one rank in three
  EXPECT_EQ(ranks.contributors(), 3U);
}

// Loss within the bound is made up for however little is left: otherwise a sender with bad luck
// would have less weight than the others.
TEST(TolerantPiece, LittleOfAContributionThatEndedInTimeCounts) {
  ThreeRanks ranks;
  ranks.deliver(2, 0.2);
  EXPECT_GT(ranks.error_of_mean(), 0.1);
  EXPECT_EQ(ranks.contributors(), 3U);
}

// With error feedback what waits for the next time is not lost, so a small part does not count.
TEST(TolerantPiece, LittleOfAContributionWaitsWithErrorFeedback) {
  ThreeRanks ranks(/*feedback_tensor=*/7);
  ranks.deliver(2, 0.2);
  EXPECT_LT(ranks.error_of_mean(), 1e-6);
  EXPECT_EQ(ranks.contributors(), 2U);
  EXPECT_TRUE(ranks.receipt_of(2).uses_nothing());
}

TEST(TolerantPiece, AReceiptSaysWhatOfEachPacketIsInTheSum) {
  ThreeRanks ranks(/*feedback_tensor=*/7);
  ranks.deliver(2, 0.8);
  ranks.error_of_mean();
  const Receipt whole = ranks.receipt_of(1);
  EXPECT_EQ(whole.contributors, 3);
  EXPECT_EQ(whole.used.size(), ranks.packets());
  EXPECT_EQ(std::count(whole.used.begin(), whole.used.end(), 0), 0);
  const Receipt part = ranks.receipt_of(2);
  const auto missing = std::count(part.used.begin(), part.used.end(), 0);
  EXPECT_GT(missing, 0);
  EXPECT_LT(missing, static_cast<std::ptrdiff_t>(ranks.packets()) / 2);
}

}  // namespace
}  // namespace spillway::collective
