// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy/message.h"

#include <gtest/gtest.h>

#include "codec/entropy/sample_integers.h"

namespace spillway::codec::entropy {
namespace {

ProbabilityTable last_table(std::uint64_t seed) {
  Histogram histogram(Alphabet::bytes());
  histogram.add(std::span<const std::int32_t>(gaussian_integers(40'000, 5.0, seed)));
  return ProbabilityTable::of_counts(histogram);
}

std::vector<std::uint8_t> message_of(const std::vector<std::int32_t>& values,
                                     const EncodeTable* table, Histogram* counted = nullptr) {
  BlockEncoder encoder;
  std::vector<std::uint8_t> bytes(max_message_bytes(values.size()));
  const auto size = encode_message(encoder, {.iteration = 9, .step = 3}, values, Alphabet::bytes(),
                                   table, bytes, counted);
  EXPECT_TRUE(size.ok());
  bytes.resize(*size);
  return bytes;
}

TEST(EntropyMessageTest, HeadersSayWhatIsThere) {
  const EncodeTable table(last_table(1));
  const std::vector<std::int32_t> values = gaussian_integers(10'000, 5.0, 2);
  const std::vector<std::uint8_t> bytes = message_of(values, &table);
  const auto header = read_message_header(bytes);
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->iteration, 9U);
  EXPECT_EQ(header->step, 3U);
  EXPECT_EQ(header->table_hash, table.probabilities().hash());
  EXPECT_EQ(header->values, values.size());
  EXPECT_EQ(header->block_bytes + kMessageHeaderBytes, bytes.size());
  EXPECT_EQ(header->mode, BlockMode::kKnownTable);
  for (std::size_t size = 0; size < bytes.size(); size += 11) {
    EXPECT_FALSE(read_message_header(base::ByteView(bytes).first(size)).ok());
  }
}

// Both ends count, build the next table, and need not send it. A differing count is noticed and
// costs one inline table.
TEST(EntropyMessageTest, EndsThatCountTheSameAgreeAndOthersFindOut) {
  Histogram sent(Alphabet::bytes());
  Histogram received(Alphabet::bytes());
  std::vector<std::int32_t> values = gaussian_integers(20'000, 5.0, 2);
  std::vector<std::int32_t> decoded(values.size());
  BlockDecoder decoder;
  ASSERT_TRUE(
      decode_message(decoder, message_of(values, nullptr, &sent), nullptr, decoded, &received)
          .ok());
  EXPECT_EQ(decoded, values);

  values = gaussian_integers(20'000, 5.1, 3);
  const EncodeTable table(ProbabilityTable::of_counts(sent));
  const std::vector<std::uint8_t> second = message_of(values, &table);
  const DecodeTable same(ProbabilityTable::of_counts(received));
  ASSERT_TRUE(decode_message(decoder, second, &same, decoded).ok());
  EXPECT_EQ(decoded, values);

  received.add_symbol(0, 5);
  const DecodeTable other(ProbabilityTable::of_counts(received));
  EXPECT_EQ(decode_message(decoder, second, &other, decoded).code(), base::StatusCode::kMismatch);
  EXPECT_EQ(decode_message(decoder, second, nullptr, decoded).code(), base::StatusCode::kMismatch);
  EXPECT_TRUE(decode_message(decoder, message_of(values, nullptr), &other, decoded).ok());
  EXPECT_EQ(decoded, values);
}

TEST(EntropyMessageTest, PacketsDecodeAloneInAnyOrder) {
  const ProbabilityTable probabilities = last_table(1);
  const EncodeTable encode_table(probabilities);
  const DecodeTable decode_table(probabilities);
  const std::vector<std::int32_t> values = gaussian_integers(30'000, 5.0, 4);
  BlockEncoder encoder;
  std::vector<std::vector<std::uint8_t>> packets;
  std::vector<std::size_t> firsts;
  std::size_t bytes = 0;
  for (std::size_t first = 0; first < values.size();) {
    std::vector<std::uint8_t> packet(1300);
    const auto made =
        encode_packet(encoder, std::span(values).subspan(first), encode_table, packet);
    ASSERT_TRUE(made.ok());
    packet.resize(made->bytes);
    bytes += made->bytes;
    packets.push_back(packet);
    firsts.push_back(first);
    first += made->values;
  }
  Histogram histogram(Alphabet::bytes());
  histogram.add(std::span<const std::int32_t>(values));
  EXPECT_LT(static_cast<double>(bytes) * 8, histogram.entropy_bits() * 1.02);

  BlockDecoder decoder;
  for (std::size_t i = packets.size(); i-- > 0;) {
    std::vector<std::int32_t> decoded(*packet_values(packets[i]));
    ASSERT_TRUE(decode_packet(decoder, packets[i], decode_table, decoded).ok());
    EXPECT_TRUE(
        std::equal(decoded.begin(), decoded.end(), values.begin() + static_cast<long>(firsts[i])));
  }
  const DecodeTable other(last_table(77));
  std::vector<std::int32_t> decoded(*packet_values(packets[0]));
  EXPECT_EQ(decode_packet(decoder, packets[0], other, decoded).code(), base::StatusCode::kMismatch);
}

TEST(EntropyMessageTest, TheSmallestPacketHoldsAnyValue) {
  const EncodeTable table(last_table(1));
  const std::vector<std::int32_t> values = {INT32_MIN, 5};
  BlockEncoder encoder;
  std::vector<std::uint8_t> packet(kMinPacketBytes);
  const auto made = encode_packet(encoder, values, table, packet);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->values, 1U);
  EXPECT_FALSE(encode_packet(encoder, values, table, base::MutableByteView(packet).first(9)).ok());
}

}  // namespace
}  // namespace spillway::codec::entropy
