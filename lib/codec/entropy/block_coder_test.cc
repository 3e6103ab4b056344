// SPDX-License-Identifier: Apache-2.0
#include "codec/entropy/block_coder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "codec/entropy/message.h"
#include "codec/sample_data.h"

namespace spillway::codec::entropy {
namespace {

template <typename Value>
constexpr unsigned kBitsOf = 8 * sizeof(Value);

ProbabilityTable table_of(const Alphabet& alphabet, const std::vector<std::int32_t>& values) {
  Histogram histogram(alphabet);
  histogram.add(std::span<const std::int32_t>(values));
  return ProbabilityTable::of_counts(histogram);
}

template <typename Value>
std::vector<std::uint8_t> encoded(std::span<const Value> values, const EncodeTable& table,
                                  BlockMode* mode = nullptr, Histogram* counted = nullptr,
                                  const RansKernels& kernels = best_rans_kernels()) {
  // One byte more than the bound, which must stay unchanged.
  std::vector<std::uint8_t> bytes(max_block_bytes(values.size(), kBitsOf<Value>) + 1, 0xA5);
  BlockEncoder encoder(kernels);
  const auto block =
      encoder.encode(values, table, base::MutableByteView(bytes).first(bytes.size() - 1), counted);
  EXPECT_TRUE(block.ok()) << block.status().to_string();
  EXPECT_EQ(bytes.back(), 0xA5);
  if (mode != nullptr) {
    *mode = block->mode;
  }
  bytes.resize(block->bytes);
  return bytes;
}

// Encodes and decodes, with counting at both ends.
template <typename Value>
std::size_t round_trip(const std::vector<Value>& values, const ProbabilityTable& probabilities,
                       BlockMode* mode = nullptr) {
  const EncodeTable encode_table(probabilities);
  const DecodeTable decode_table(probabilities);
  Histogram sent(probabilities.alphabet());
  Histogram received(probabilities.alphabet());
  const std::vector<std::uint8_t> bytes =
      encoded(std::span<const Value>(values), encode_table, mode, &sent);
  std::vector<Value> decoded(values.size(), Value{77});
  BlockDecoder decoder;
  const base::Status status =
      decoder.decode(bytes, &decode_table, std::span<Value>(decoded), &received);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(decoded, values);
  EXPECT_EQ(sent, received);
  EXPECT_EQ(sent.total(), values.size());
  return bytes.size();
}

TEST(BlockCoderTest, EveryLengthAndAlphabetComesBack) {
  for (const std::size_t count : {0U, 1U, 2U, 3U, 5U, 31U, 1000U, 32'767U, 32'768U, 40'001U}) {
    const std::vector<std::int32_t> values = gaussian_integers(count, 9.0, count);
    for (const Alphabet& alphabet : {Alphabet::bytes(), Alphabet::ranges(), *Alphabet::direct(2),
                                     *Alphabet::direct(12), *Alphabet::direct(700)}) {
      round_trip(values, table_of(alphabet, values));
      round_trip(narrowed<std::int16_t>(values), table_of(alphabet, values));
      round_trip(narrowed<std::int8_t>(values), table_of(alphabet, values));
    }
  }
}

TEST(BlockCoderTest, BitsAreWithinOnePercentOfTheEntropy) {
  constexpr std::size_t kCount = 200'000;
  for (const double sigma : {0.3, 1.0, 5.0, 30.0}) {
    for (const unsigned ranks : {1U, 4U}) {
      const std::vector<std::int32_t> values = gaussian_integers(kCount, sigma, 11, ranks);
      Histogram exact(*Alphabet::direct(2048));
      exact.add(std::span<const std::int32_t>(values));
      for (const Alphabet& alphabet : {*Alphabet::direct(2048), Alphabet::ranges()}) {
        BlockMode mode{};
        const auto bits =
            8.0 * static_cast<double>(round_trip(values, table_of(alphabet, values), &mode));
        EXPECT_EQ(mode, BlockMode::kKnownTable);
        EXPECT_LE(bits, exact.entropy_bits() * 1.01) << sigma << " " << ranks;
      }
    }
  }
}

TEST(BlockCoderTest, TheShortestModeIsTaken) {
  const ProbabilityTable table = ProbabilityTable::laplace(Alphabet::bytes(), 1000);
  BlockMode mode{};
  EXPECT_EQ(round_trip(std::vector<std::int32_t>(5000, 0), table, &mode), 1U);
  EXPECT_EQ(mode, BlockMode::kZero);
  EXPECT_EQ(round_trip(std::vector<std::int32_t>(5000, -123'456), table, &mode), 5U);
  EXPECT_EQ(mode, BlockMode::kConstant);
  round_trip(laplace_integers(5000, 4.0, 1), table, &mode);
  EXPECT_EQ(mode, BlockMode::kKnownTable);
  base::RandomSequence random(4);
  std::vector<std::int32_t> noise(5000);
  std::generate(noise.begin(), noise.end(),
                [&] { return static_cast<std::int32_t>(random.next_word()); });
  EXPECT_EQ(round_trip(noise, table, &mode), max_block_bytes(noise.size()));
  EXPECT_EQ(mode, BlockMode::kRaw);
}

TEST(BlockCoderTest, ValuesThatTheTableNeverSawAreEscaped) {
  const std::vector<std::int32_t> last = gaussian_integers(50'000, 3.0, 1);
  std::vector<std::int32_t> now = gaussian_integers(50'000, 3.0, 2);
  now[100] = INT32_MAX;
  now[40'000] = INT32_MIN;
  now[49'999] = 100;
  for (const Alphabet& alphabet : {Alphabet::bytes(), Alphabet::ranges(), *Alphabet::direct(300)}) {
    BlockMode mode{};
    round_trip(now, table_of(alphabet, last), &mode);
    EXPECT_EQ(mode, BlockMode::kKnownTable);
  }
}

// Data that is worst for one mode must suit another: only escapes, only rare symbols, extremes.
TEST(BlockCoderTest, SingleEscapesAreFoundWhereverTheyAre) {
  const std::size_t count = 1000;
  const std::vector<std::int32_t> usual = gaussian_integers(count, 1.0, 5);
  for (const Alphabet& alphabet :
       {Alphabet::bytes(), Alphabet::ranges(), *Alphabet::direct(7), *Alphabet::direct(700)}) {
    const ProbabilityTable table = table_of(alphabet, usual);
    for (const std::size_t at : {0U, 1U, 63U, 64U, 127U, 128U, 998U, 999U}) {
      std::vector<std::int32_t> values = usual;
      values[at] = -101;
      BlockMode mode = BlockMode::kRaw;
      round_trip(values, table, &mode);
      EXPECT_EQ(mode, BlockMode::kKnownTable);
    }
  }
}

TEST(BlockCoderTest, NothingIsLongerThanTheBound) {
  const ProbabilityTable surprised = ProbabilityTable::laplace(Alphabet::bytes(), 1);
  for (const std::size_t count : {1U, 2U, 3U, 4U, 100U, 33'000U}) {
    std::vector<std::int8_t> alternating(count);
    std::vector<std::int32_t> extremes(count);
    for (std::size_t i = 0; i < count; ++i) {
      alternating[i] = i % 2 == 0 ? std::int8_t{127} : std::int8_t{-128};
      extremes[i] = i % 2 == 0 ? INT32_MAX : INT32_MIN;
    }
    EXPECT_LE(round_trip(alternating, surprised), max_block_bytes(count, 8));
    EXPECT_LE(round_trip(extremes, surprised), max_block_bytes(count));
    EXPECT_LE(round_trip(std::vector<std::int8_t>(count, -128), surprised),
              max_block_bytes(count, 8));
  }
}

TEST(BlockCoderTest, InlineTablesComeAlong) {
  const std::vector<std::int32_t> values = laplace_integers(60'000, 5.0, 8);
  for (const Alphabet& alphabet : {Alphabet::bytes(), Alphabet::ranges()}) {
    std::vector<std::uint8_t> bytes(max_block_bytes(values.size()));
    BlockEncoder encoder;
    Histogram sent(alphabet);
    const auto block =
        encoder.encode_inline(std::span<const std::int32_t>(values), alphabet, bytes, &sent);
    ASSERT_TRUE(block.ok());
    EXPECT_EQ(block->mode, BlockMode::kInlineTable);
    EXPECT_EQ(block->table_hash, table_of(alphabet, values).hash());
    EXPECT_LE(static_cast<double>(block->bytes) * 8, sent.entropy_bits() * 1.01);
    bytes.resize(block->bytes);
    std::vector<std::int32_t> decoded(values.size());
    BlockDecoder decoder;
    EXPECT_TRUE(decoder.decode(bytes, nullptr, std::span<std::int32_t>(decoded)).ok());
    EXPECT_EQ(decoded, values);
  }
}

TEST(BlockCoderTest, EveryKernelTableMakesTheSameBytesAndReadsThem) {
  for (const double sigma : {0.3, 8.0, 90.0}) {
    const std::vector<std::int32_t> values = gaussian_integers(33'333, sigma, 21, 3);
    for (const Alphabet& alphabet :
         {Alphabet::bytes(), Alphabet::ranges(), *Alphabet::direct(900)}) {
      const ProbabilityTable probabilities = table_of(alphabet, values);
      const EncodeTable encode_table(probabilities);
      const DecodeTable decode_table(probabilities);
      const std::vector<std::uint8_t> oracle =
          encoded(std::span<const std::int32_t>(values), encode_table, nullptr, nullptr,
                  scalar_rans_kernels());
      for (const RansKernels* kernels : available_rans_kernels()) {
        EXPECT_EQ(encoded(std::span<const std::int32_t>(values), encode_table, nullptr, nullptr,
                          *kernels),
                  oracle)
            << kernels->name;
        std::vector<std::int32_t> decoded(values.size());
        BlockDecoder decoder(*kernels);
        EXPECT_TRUE(decoder.decode(oracle, &decode_table, std::span<std::int32_t>(decoded)).ok());
        EXPECT_EQ(decoded, values) << kernels->name;
      }
    }
  }
}

TEST(BlockCoderTest, WhatIsCutIsAnErrorAndCountsNothing) {
  const std::vector<std::int32_t> values = gaussian_integers(33'000, 1.0, 5);
  const ProbabilityTable probabilities = table_of(Alphabet::bytes(), values);
  const DecodeTable table(probabilities);
  const std::vector<std::uint8_t> bytes =
      encoded(std::span<const std::int32_t>(values), EncodeTable(probabilities));
  std::vector<std::int32_t> decoded(values.size());
  for (const RansKernels* kernels : available_rans_kernels()) {
    BlockDecoder decoder(*kernels);
    Histogram counted(Alphabet::bytes());
    for (std::size_t size = 0; size < bytes.size(); size += size < 200 ? 1 : 97) {
      // An allocation of their own, so that a sanitizer sees reads beyond the end.
      const std::vector<std::uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<long>(size));
      EXPECT_FALSE(decoder.decode(cut, &table, std::span<std::int32_t>(decoded), &counted).ok());
    }
    EXPECT_EQ(counted.total(), 0U);
  }
}

TEST(BlockCoderTest, ChangedBytesAreErrorsInAllKernelsAlike) {
  const std::vector<std::int32_t> values = gaussian_integers(33'000, 4.0, 6);
  const ProbabilityTable probabilities = table_of(Alphabet::ranges(), values);
  const DecodeTable table(probabilities);
  const std::vector<std::uint8_t> bytes =
      encoded(std::span<const std::int32_t>(values), EncodeTable(probabilities));
  base::RandomSequence random(1);
  std::vector<std::int32_t> decoded(values.size());
  int errors = 0;
  constexpr int kTries = 60;
  for (int i = 0; i < kTries; ++i) {
    std::vector<std::uint8_t> changed = bytes;
    changed[random.next_below(i % 2 == 0 ? 160 : bytes.size())] ^=
        static_cast<std::uint8_t>(1U << random.next_below(8));
    std::vector<bool> verdicts;
    for (const RansKernels* kernels : available_rans_kernels()) {
      BlockDecoder decoder(*kernels);
      verdicts.push_back(decoder.decode(changed, &table, std::span<std::int32_t>(decoded)).ok());
    }
    EXPECT_EQ(std::count(verdicts.begin(), verdicts.end(), verdicts[0]),
              static_cast<long>(verdicts.size()));
    errors += verdicts[0] ? 0 : 1;
  }
  EXPECT_GT(errors,
            kTries / 2);  // a flipped offset bit gives another value, which only tags detect
}

TEST(BlockCoderTest, MadeUpBlocksAreErrors) {
  std::vector<std::int8_t> decoded(100);
  BlockDecoder decoder;
  const DecodeTable table(ProbabilityTable::laplace(Alphabet::bytes(), 700));
  const auto decodes = [&](std::vector<std::uint8_t> bytes, const DecodeTable* known) {
    return decoder.decode(bytes, known, std::span<std::int8_t>(decoded));
  };
  EXPECT_FALSE(decodes({}, &table).ok());
  EXPECT_FALSE(decodes({9}, &table).ok());
  EXPECT_FALSE(decodes({3, 0}, &table).ok());
  EXPECT_FALSE(decodes({0, 33}, &table).ok());
  EXPECT_FALSE(decodes({4, 0, 1, 0, 0}, &table).ok());  // 256 in int8
  EXPECT_FALSE(decodes({1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, &table).ok());
  EXPECT_EQ(decodes({1, 0}, nullptr).code(), base::StatusCode::kMismatch);
  base::RandomSequence random(3);
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::uint8_t> bytes(1 + random.next_below(120));
    std::generate(bytes.begin(), bytes.end(),
                  [&] { return static_cast<std::uint8_t>(random.next_word()); });
    bytes[0] = static_cast<std::uint8_t>(1 + random.next_below(2));
    EXPECT_FALSE(decodes(bytes, &table).ok());
  }
}

TEST(BlockCoderTest, PrefixesFillTheirRoom) {
  const std::vector<std::int32_t> values = gaussian_integers(30'000, 5.0, 31);
  const EncodeTable table(table_of(Alphabet::bytes(), values));
  BlockEncoder encoder;
  std::vector<std::uint8_t> packet(1300);
  const auto block = encoder.encode_prefix(std::span<const std::int32_t>(values), 65'535, table,
                                           base::MutableByteView(packet));
  ASSERT_TRUE(block.ok());
  EXPECT_GT(block->bytes, 1280U);
  EXPECT_FALSE(encoder
                   .encode_prefix(std::span<const std::int32_t>(values), 10, table,
                                  base::MutableByteView(packet).first(1))
                   .ok());
}

TEST(BlockCoderTest, CallersErrorsAreStatuses) {
  const std::vector<std::int32_t> values = gaussian_integers(100, 5.0, 31);
  const EncodeTable table(table_of(Alphabet::bytes(), values));
  BlockEncoder encoder;
  std::vector<std::uint8_t> small(max_block_bytes(100) - 1);
  EXPECT_EQ(encoder.encode(std::span<const std::int32_t>(values), table, small).status().code(),
            base::StatusCode::kInvalidArgument);
  std::vector<std::uint8_t> enough(max_block_bytes(100));
  Histogram other(Alphabet::ranges());
  EXPECT_EQ(
      encoder.encode(std::span<const std::int32_t>(values), table, enough, &other).status().code(),
      base::StatusCode::kInvalidArgument);
}

// ------------------------------------------------------------------ messages

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
