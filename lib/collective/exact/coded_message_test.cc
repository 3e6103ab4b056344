// SPDX-License-Identifier: Apache-2.0
#include "collective/exact/coded_message.h"

#include <gtest/gtest.h>

#include <array>

#include "wire/packet_auth.h"

namespace spillway::collective {
namespace {

// A message of ten packets, and code of four.
class EitherSinkTest : public testing::Test {
 protected:
  static constexpr std::size_t kPackets = 10;
  static constexpr std::size_t kCodePackets = 4;

  EitherSinkTest()
      : layout_(ByteLayout::make({.mtu = 1500}).value()),
        plain_(kPackets * layout_.bytes_per_packet - ByteLayout::kSignatureBytes, 7),
        code_(code_of(kCodePackets * layout_.bytes_per_packet - 200)),
        got_(plain_.size()),
        plain_sink_(got_.data(), got_.size(), layout_),
        sink_(plain_sink_, got_.size(), layout_, pool_) {}

  static std::vector<std::uint8_t> code_of(std::size_t bytes) {
    std::vector<std::uint8_t> code(bytes, 9);
    base::store_le(code.data(), std::uint64_t{bytes});
    return code;
  }

  // Planes that the sink takes of packet `index` of a message.
  unsigned take(const std::vector<std::uint8_t>& bytes, ByteForm form, std::uint16_t index,
                std::size_t cut = 0) {
    ByteSource source(bytes.data(), bytes.size(), layout_, form);
    std::array<std::uint8_t, SPILLWAY_MAX_PACKET> packet;
    wire::DataStamp stamp;
    stamp.packet = index;
    const std::size_t size = source.write(stamp, auth_, packet);
    const base::ByteView came = base::ByteView(packet).first(size - cut);
    wire::OpenedPacket opened;
    EXPECT_EQ(wire::open_data_packet(came, auth_, opened), wire::PacketFault::kNone);
    return sink_.take(opened, came);
  }

  wire::PacketAuth auth_ =
      wire::PacketAuth::of_secret(std::array<std::uint8_t, 16>{1, 2, 3}).value();
  ByteLayout layout_;
  ScratchPool pool_{1 << 20};
  std::vector<std::uint8_t> plain_;
  std::vector<std::uint8_t> code_;
  std::vector<std::uint8_t> got_;
  ByteSink plain_sink_;
  EitherSink sink_;
};

TEST_F(EitherSinkTest, PlainMessagesGoToTheirPlace) {
  for (std::uint16_t i = 0; i < kPackets; ++i) {
    EXPECT_EQ(take(plain_, ByteForm::kPlain, i), ByteLayout::kPlanes);
  }
  EXPECT_FALSE(sink_.is_coded());
  EXPECT_EQ(sink_.packets(), 0U);
  EXPECT_EQ(got_, plain_);
  EXPECT_EQ(pool_.used_bytes(), 0U);
}

TEST_F(EitherSinkTest, CodeIsCollectedInAnyOrder) {
  for (const std::uint16_t i : {2, 0, 3, 1}) {
    EXPECT_EQ(take(code_, ByteForm::kCode, i), ByteLayout::kPlanes);
    EXPECT_EQ(sink_.packets(), i == 2 ? 0U : kCodePackets);
  }
  ASSERT_TRUE(sink_.is_coded());
  const base::ByteView code = sink_.code();
  EXPECT_TRUE(std::equal(code_.begin() + kCodeStart, code_.end(), code.begin(), code.end()));
  sink_.drop_code();
  EXPECT_EQ(pool_.used_bytes(), 0U);
}

TEST_F(EitherSinkTest, APacketThatIsNotFullShowsWhereTheCodeEnds) {
  EXPECT_EQ(take(code_, ByteForm::kCode, kCodePackets - 1), ByteLayout::kPlanes);
  EXPECT_EQ(sink_.packets(), kCodePackets);
  EXPECT_EQ(take(code_of(code_.size() - 8), ByteForm::kCode, 0), 0U);
  EXPECT_EQ(take(code_, ByteForm::kCode, 0), ByteLayout::kPlanes);
}

TEST_F(EitherSinkTest, ACutPacketOnlyShowsThatItWasSent) {
  EXPECT_EQ(take(code_, ByteForm::kCode, 0, /*cut=*/600), 1U);
  EXPECT_EQ(sink_.packets(), 0U);
  EXPECT_EQ(take(code_, ByteForm::kCode, 0), ByteLayout::kPlanes);
}

TEST_F(EitherSinkTest, AMessageKeepsItsFormAndLength) {
  EXPECT_EQ(take(code_, ByteForm::kCode, 0), ByteLayout::kPlanes);
  EXPECT_EQ(take(plain_, ByteForm::kPlain, 1), 0U);
  EXPECT_EQ(take(code_of(layout_.bytes_per_packet), ByteForm::kCode, 0), 0U);
  EXPECT_EQ(take(plain_, ByteForm::kCode, kCodePackets), 0U);
  EXPECT_EQ(sink_.packets(), kCodePackets);
}

TEST_F(EitherSinkTest, PlainMessagesDoNotTurnIntoCode) {
  EXPECT_EQ(take(plain_, ByteForm::kPlain, 0), ByteLayout::kPlanes);
  EXPECT_EQ(take(code_, ByteForm::kCode, 1), 0U);
  EXPECT_EQ(sink_.packets(), 0U);
}

TEST_F(EitherSinkTest, CodeIsNotLongerThanTheMessage) {
  EXPECT_EQ(take(code_of(plain_.size() + 1), ByteForm::kCode, 0), 0U);
  EXPECT_EQ(take(code_of(kCodeStart), ByteForm::kCode, 0), 0U);
  EXPECT_EQ(sink_.packets(), 0U);
}

TEST(SpanCodes, EncodeASpanOnceForAllItsReceivers) {
  ScratchPool pool(0);
  {
    SpanCodes codes(pool);
    const Span span{Region::kOutput, 64, 100'000};
    SpanCode& first = codes.take(span);
    EXPECT_EQ(first.uses, 1U);
    EXPECT_GE(first.buffer.bytes, most_code_bytes(span.bytes));
    first.is_ready = true;
    EXPECT_EQ(&codes.take(span), &first);
    codes.give_back(span);
    EXPECT_TRUE(codes.at(span).is_ready);
    codes.give_back(span);
    EXPECT_EQ(pool.used_bytes(), 0U);
    EXPECT_FALSE(codes.take(span).is_ready);  // its values may be others by now
  }
  EXPECT_EQ(pool.used_bytes(), 0U);
}

}  // namespace
}  // namespace spillway::collective
