// SPDX-License-Identifier: Apache-2.0
//
// What an owner makes of contributions of which some came whole and one only in part.
#include "collective/tolerant_piece.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "codec/sample_data.h"
#include "wire/data_packet.h"

namespace spillway::collective {
namespace {

constexpr std::size_t kCount = 4 * 8192;

// Rank 0 of three owns the only piece; all have ones. Rank 1's contribution comes whole.
class ThreeRanks {
 public:
  ThreeRanks() {
    work_.operation = {.op = ReduceOp::kAverage, .count = kCount};
    work_.group = {.rank = 0, .world = 3};
    work_.input = reinterpret_cast<const std::uint8_t*>(ones_.data());
    work_.output = reinterpret_cast<std::uint8_t*>(mean_.data());
    piece_.place = {.extent = {0, kCount}};
    piece_.result = std::make_unique<CodedSource>(plan_, auth_);
    piece_.contributions.resize(3);
    piece_.was_cut.resize(3, false);
    deliver(1, 1.0);
  }

  // Of every row, the first packets.
  void deliver(std::uint16_t from, double share) {
    const wire::MessageId message{.source = from};
    CodedSource source(plan_, auth_);
    source.encode(ones_, work_.job, message);
    auto sink = std::make_unique<CodedSink>(plan_, work_.job, message, auth_);
    std::vector<std::uint8_t> bytes(plan_.max_packet_size());
    for (std::size_t packet = 0; packet < plan_.packet_count(); ++packet) {
      const packetize::PacketPlace place = plan_.place(packet);
      const auto in_row = static_cast<double>(plan_.packets_in(place.row));
      if (static_cast<double>(place.slot) >= share * in_row) {
        continue;
      }
      const std::size_t length =
          source.write({.message = message, .packet = static_cast<std::uint16_t>(packet)}, bytes);
      wire::OpenedPacket opened;
      const base::ByteView written = base::ByteView(bytes).first(length);
      ASSERT_EQ(wire::open_data_packet(written, auth_, opened), wire::PacketFault::kNone);
      ASSERT_GT(sink->take(opened, written), 0U);
    }
    piece_.contributions[from] = std::move(sink);
  }
  void cut(std::uint16_t from) { piece_.was_cut[from] = true; }

  double error_of_mean() {
    add_up_contributions(work_, {.source = 0, .phase = wire::Phase::kGather}, piece_);
    return codec::nmse(mean_, ones_);
  }
  unsigned contributors() const { return piece_.contributors; }

 private:
  packetize::PacketPlan plan_ = packetize::PacketPlan::make(kCount, {}, {}).value();
  wire::PacketAuth auth_ = wire::PacketAuth::crc32c(1);
  std::vector<float> ones_ = std::vector<float>(kCount, 1.0F);
  std::vector<float> mean_ = std::vector<float>(kCount);
  PieceWork work_;
  PieceState piece_;
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

// Loss within the bound is made up for whatever is left: else a sender with bad luck would have
// less weight than the others.
TEST(TolerantPiece, LittleOfAContributionThatEndedInTimeCounts) {
  ThreeRanks ranks;
  ranks.deliver(2, 0.2);
  EXPECT_GT(ranks.error_of_mean(), 0.1);
  EXPECT_EQ(ranks.contributors(), 3U);
}

}  // namespace
}  // namespace spillway::collective
