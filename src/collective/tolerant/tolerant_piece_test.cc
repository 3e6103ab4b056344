// SPDX-License-Identifier: Apache-2.0
//
// What an owner makes of contributions of which some came whole and one only in part; and what a
// rank sends with error feedback.
#include "collective/tolerant/tolerant_piece.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "codec/sample_data.h"
#include "wire/data_packet.h"

namespace spillway::collective {
namespace {

constexpr std::size_t kCount = 4 * 8192;
constexpr Group kGroup{.rank = 0, .world = 3};

// Rank 0 of three owns the only piece; all have ones. Rank 1's contribution comes whole.
class ThreeRanks {
 public:
  ThreeRanks() {
    config_.group = kGroup;
    piece_.result = std::make_unique<CodedSource>(plan_, auth_);
    piece_.contributions.resize(3);
    piece_.was_cut.resize(3, false);
    deliver(1, 1.0);
  }

  // Of every row, the first packets.
  void deliver(std::uint16_t from, double share) {
    const wire::MessageId message{.source = from};
    CodedSource source(plan_, auth_);
    source.encode(ones_, config_.job, message);
    auto sink = std::make_unique<CodedSink>(plan_, config_.job, message, auth_);
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
    add_up_contributions({operation_, config_, {}}, {.source = 0, .phase = wire::Phase::kGather},
                         piece_);
    return codec::nmse(mean_, ones_);
  }
  unsigned contributors() const { return piece_.contributors; }

 private:
  packetize::PacketPlan plan_ = packetize::PacketPlan::make(kCount, {}, {}).value();
  wire::PacketAuth auth_ = wire::PacketAuth::crc32c(1);
  std::vector<float> ones_ = std::vector<float>(kCount, 1.0F);
  std::vector<float> mean_ = std::vector<float>(kCount);
  Operation operation_{
      .op = ReduceOp::kAverage, .count = kCount, .input = ones_.data(), .output = mean_.data()};
  RunConfig config_;
  PieceState piece_{{.extent = {0, kCount}, .owner = 0}, kGroup};
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

// Rank 1 of two, which sends a tensor coarsely, again and again.
class Contributor {
 public:
  static constexpr std::size_t kLength = 8192;

  explicit Contributor(bool has_feedback) : has_feedback_(has_feedback) { config_.group = kPair; }

  // What the owner has of it when everything comes.
  std::vector<float> send(const std::vector<float>& gradient) {
    const Operation operation{.count = kLength, .input = gradient.data()};
    const wire::MessageId message{.operation = ++sequence_, .source = 1};
    piece_.contribution = std::make_unique<CodedSource>(plan_, auth_);
    encode_contribution(
        {operation, config_, has_feedback_ ? std::span(residual_) : std::span<float>()}, message,
        piece_);
    std::vector<float> received(kLength);
    piece_.contribution->decode(received, config_.job, message);
    return received;
  }
  bool owes_nothing() const {
    return std::all_of(residual_.begin(), residual_.end(), [](float v) { return v == 0.0F; });
  }

 private:
  static constexpr Group kPair{.rank = 1, .world = 2};

  bool has_feedback_;
  packetize::PacketPlan plan_ = packetize::PacketPlan::make(kLength, {}, {.precision = 2}).value();
  wire::PacketAuth auth_ = wire::PacketAuth::crc32c(1);
  std::vector<float> residual_ = std::vector<float>(kLength);
  std::uint32_t sequence_ = 0;
  RunConfig config_;
  PieceState piece_{{.extent = {0, kLength}, .owner = 0}, kPair};
};

// The error of what was received in all, of a gradient that is a fixed direction and noise.
double error_of_sums(bool has_feedback) {
  constexpr std::uint64_t kSteps = 50;
  Contributor rank(has_feedback);
  const std::vector<float> direction = codec::gaussian_values(Contributor::kLength, 1);
  std::vector<float> sent(Contributor::kLength);
  std::vector<float> received(Contributor::kLength);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    std::vector<float> gradient = codec::gaussian_values(Contributor::kLength, 100 + step);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] += direction[i];
    }
    const std::vector<float> came = rank.send(gradient);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      sent[i] += gradient[i];
      received[i] += came[i];
    }
  }
  return codec::nmse(received, sent);
}

TEST(TolerantPiece, WithErrorFeedbackSumsOfWhatIsSentTrackTheSumsOfGradients) {
  EXPECT_LT(error_of_sums(true), 3e-4);
  EXPECT_GT(error_of_sums(false), 3e-3);
}

TEST(TolerantPiece, ANonFiniteGradientClearsTheResidualInsteadOfPoisoningIt) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Contributor rank(true);
    const std::vector<float> good = codec::gaussian_values(Contributor::kLength, 1);
    rank.send(good);
    EXPECT_FALSE(rank.owes_nothing());
    std::vector<float> gradient = good;
    gradient[5] = bad;
    const std::vector<float> came = rank.send(gradient);
    EXPECT_TRUE(std::any_of(came.begin(), came.end(), [](float v) { return std::isnan(v); }));
    EXPECT_TRUE(rank.owes_nothing());
    EXPECT_LT(codec::nmse(rank.send(good), good), 0.5);
  }
}

}  // namespace
}  // namespace spillway::collective
