// SPDX-License-Identifier: Apache-2.0
#include "wire/data_packet.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

extern "C" unsigned spillway_test_data_header_size(void);

namespace spillway::wire {
namespace {

const std::array<std::uint8_t, 16> kSecret = {1, 2,  3,  4,  5,  6,  7,  8,
                                              9, 10, 11, 12, 13, 14, 15, 16};

constexpr std::uint64_t kPayloadRange = std::uint64_t{1} << 24;

DataHeader example_header() {
  return {.stamp = {.message = {.operation = 99,
                                .signature = 0x0123456789ABCDEF,
                                .piece = 2,
                                .source = 5,
                                .phase = Phase::kGather},
                    .number = 5 * kPayloadRange + 17,
                    .epoch = 7,
                    .timestamp_us = 0xDEADBEEF,
                    .job = 0x1234,
                    .destination = 8,
                    .packet = 47,
                    .path = 60,
                    .priority = 6,
                    .importance = 3,
                    .last = true,
                    .retransmit = true},
          .row_log2 = 13,
          .rotations = 2,
          .planes = 16,
          .slot = 1,
          .row = 4,
          .quanta = 22,
          .head_bytes = 120,
          .scale = 0.25F};
}

constexpr std::array kProtections = {Protection::kTags, Protection::kEncryption};

PacketAuth auth_for(Protection protection, std::uint8_t key = 1) {
  RunKey run;
  run.bytes.fill(key);
  return PacketAuth::make(run, {.epoch = 7, .from = 5, .to = 8}, protection).value();
}

struct Example {
  explicit Example(Protection protection) : auth(auth_for(protection)), header(example_header()) {
    base::RandomSequence random(1);
    planes.resize(header.payload_bytes());
    for (std::uint8_t& byte : planes) {
      byte = static_cast<std::uint8_t>(random.next_word());
    }
    packet.resize(header.packet_size());
    EXPECT_EQ(write_data_packet(header, planes, auth, packet), packet.size());
  }

  PacketFault open(base::ByteView bytes, OpenedPacket& opened) const {
    return open_data_packet(bytes, auth, opened, header.stamp.number - 9);
  }

  PacketAuth auth;
  DataHeader header;
  std::vector<std::uint8_t> planes;
  std::vector<std::uint8_t> packet;
};

TEST(PacketHeader, IsTheSameInCAndCpp) {
  EXPECT_EQ(spillway_test_data_header_size(), sizeof(spillway_planes_header));
}

TEST(DataHeader, ReadsBackEveryField) {
  for (const Protection protection : kProtections) {
    const Example example(protection);
    OpenedPacket opened;
    ASSERT_EQ(example.open(example.packet, opened), PacketFault::kNone);
    const DataHeader& read = opened.header;
    EXPECT_EQ(read.stamp.job, 0x1234);
    EXPECT_EQ(read.stamp.epoch, 7U);
    EXPECT_EQ(read.stamp.destination, 8);
    EXPECT_EQ(read.stamp.number, example.header.stamp.number);
    EXPECT_EQ(read.stamp.message, example.header.stamp.message);
    EXPECT_EQ(read.stamp.packet, 47);
    EXPECT_EQ(read.encrypted, protection == Protection::kEncryption);
    EXPECT_TRUE(read.stamp.last && read.stamp.retransmit);
    EXPECT_EQ(read.stamp.priority, 6);
    EXPECT_EQ(read.stamp.importance, 3);
    EXPECT_EQ(read.stamp.path, 60);
    EXPECT_EQ(read.stamp.timestamp_us, 0xADBEEFU);
    EXPECT_EQ(read.row_log2, 13);
    EXPECT_EQ(read.rotations, 2);
    EXPECT_EQ(read.planes, 16);
    EXPECT_EQ(read.row, 4);
    EXPECT_EQ(read.first(), 704U);
    EXPECT_EQ(read.count(), 704U);
    EXPECT_EQ(read.head_bytes, 120);
    EXPECT_EQ(read.scale, 0.25F);
  }
}

TEST(DataHeader, TheLastPacketOfARowIsShorter) {
  DataHeader header = example_header();
  header.slot = 11;
  EXPECT_EQ(header.first(), 7744U);
  EXPECT_EQ(header.count(), 448U);
}

TEST(DataHeader, RefusesEveryFieldOutsideItsRange) {
  const Example example(Protection::kTags);
  const auto fault_with = [&](std::size_t offset, std::uint8_t value) {
    std::vector<std::uint8_t> packet = example.packet;
    packet[offset] = value;
    DataHeader header;
    return read_data_header(packet, header);
  };
  EXPECT_EQ(fault_with(0, 0x11), PacketFault::kVersion);
  EXPECT_EQ(fault_with(0, 0x42), PacketFault::kType);
  EXPECT_EQ(fault_with(1, 0x80), PacketFault::kField);   // unknown flag
  EXPECT_EQ(fault_with(19, 65), PacketFault::kField);    // a path beyond the stream
  EXPECT_EQ(fault_with(32, 7), PacketFault::kField);     // row of 2^7
  EXPECT_EQ(fault_with(33, 0x00), PacketFault::kField);  // no planes
  EXPECT_EQ(fault_with(33, 0x61), PacketFault::kField);  // 33 planes
  EXPECT_EQ(fault_with(33, 0x10), PacketFault::kField);  // a scale but no rotation
  EXPECT_EQ(fault_with(36, 200), PacketFault::kField);   // starts beyond the row
  EXPECT_EQ(fault_with(37, 0), PacketFault::kField);     // the second of 256 quanta
  EXPECT_EQ(fault_with(37, 255), PacketFault::kField);   // longer than any packet
  EXPECT_EQ(fault_with(38, 0), PacketFault::kField);     // no head
  EXPECT_EQ(fault_with(39, 2), PacketFault::kField);     // a reserved byte
  EXPECT_EQ(fault_with(43, 0xBE), PacketFault::kField);  // negative scale
  EXPECT_EQ(fault_with(43, 0x7F), PacketFault::kField);  // infinite or NaN scale with rotations
}

TEST(DataPacket, HoldsAWholeRowOfTheDefaultLength) {
  DataHeader header = example_header();
  header.slot = 0;
  header.planes = 8;
  header.quanta = SPILLWAY_MAX_QUANTA;
  ASSERT_EQ(header.count(), 8192U);
  const std::vector<std::uint8_t> planes(header.payload_bytes(), 0x5A);
  std::vector<std::uint8_t> packet(header.packet_size());
  const PacketAuth auth = auth_for(Protection::kTags);
  ASSERT_EQ(write_data_packet(header, planes, auth, packet), packet.size());
  EXPECT_EQ(packet[37], 0);
  OpenedPacket opened;
  ASSERT_EQ(open_data_packet(packet, auth, opened, header.stamp.number), PacketFault::kNone);
  EXPECT_EQ(opened.header.quanta, SPILLWAY_MAX_QUANTA);
  EXPECT_EQ(opened.header.packet_size(), packet.size());
}

TEST(DataPacket, IsTrustedExactlyUpToTheLastWholeCheck) {
  for (const Protection protection : kProtections) {
    const Example example(protection);
    for (std::size_t size = 0; size <= example.packet.size(); ++size) {
      const base::ByteView cut = base::ByteView(example.packet).first(size);
      OpenedPacket opened;
      const PacketFault fault = example.open(cut, opened);
      if (size < sizeof(spillway_planes_header)) {
        ASSERT_EQ(fault, PacketFault::kTooShort);
        continue;
      }
      if (size < example.header.head_end()) {
        ASSERT_EQ(fault, PacketFault::kCutInHead);
        continue;
      }
      ASSERT_EQ(fault, PacketFault::kNone) << size;
      std::vector<std::uint8_t> planes(example.planes.size());
      const TrustedPlanes trusted = copy_trusted_planes(cut, opened, planes);
      const std::size_t tail = size - example.header.head_end();
      const std::size_t segments = tail / (SPILLWAY_TAIL_SEGMENT + SPILLWAY_CHECK_SIZE);
      const std::size_t expected =
          size == example.packet.size()
              ? example.planes.size()
              : example.header.head_bytes + segments * SPILLWAY_TAIL_SEGMENT;
      ASSERT_EQ(trusted.bytes, expected) << size;
      ASSERT_FALSE(trusted.corrupt_tail);
      ASSERT_TRUE(std::equal(planes.begin(), planes.begin() + static_cast<long>(trusted.bytes),
                             example.planes.begin()));
    }
  }
}

TEST(DataPacket, EveryFlippedBitIsNoticed) {
  for (const Protection protection : kProtections) {
    const Example example(protection);
    for (std::size_t bit = 0; bit < example.packet.size() * 8; ++bit) {
      std::vector<std::uint8_t> packet = example.packet;
      packet[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
      OpenedPacket opened;
      const PacketFault fault = example.open(packet, opened);
      if (bit / 8 < example.header.head_end()) {
        ASSERT_NE(fault, PacketFault::kNone) << "bit " << bit;
        continue;
      }
      ASSERT_EQ(fault, PacketFault::kNone);
      std::vector<std::uint8_t> planes(example.planes.size());
      const TrustedPlanes trusted = copy_trusted_planes(packet, opened, planes);
      ASSERT_TRUE(trusted.corrupt_tail) << "bit " << bit;
      ASSERT_TRUE(std::equal(planes.begin(), planes.begin() + static_cast<long>(trusted.bytes),
                             example.planes.begin()));
    }
  }
}

TEST(DataPacket, HasOneTailCheckWhereTheTrimSizeIsKnown) {
  Example example(Protection::kTags);
  example.header.has_segmented_tail = false;
  std::vector<std::uint8_t> packet(example.header.packet_size());
  EXPECT_EQ(packet.size(), 44U + 1408U + 2 * 8U);
  write_data_packet(example.header, example.planes, example.auth, packet);
  for (std::size_t size = example.header.head_end(); size <= packet.size(); ++size) {
    const base::ByteView cut = base::ByteView(packet).first(size);
    OpenedPacket opened;
    ASSERT_EQ(example.open(cut, opened), PacketFault::kNone);
    std::vector<std::uint8_t> planes(example.planes.size());
    const TrustedPlanes trusted = copy_trusted_planes(cut, opened, planes);
    EXPECT_EQ(trusted.bytes, size == packet.size() ? planes.size() : example.header.head_bytes);
    EXPECT_FALSE(trusted.corrupt_tail);
  }
}

// ------------------------------------------------------------------ packets of bytes

struct BytesExample {
  BytesExample(Protection protection, std::uint16_t index)
      : auth(auth_for(protection)), bytes(index == 0 ? 1424 : 1432, 0x77) {
    header.stamp = example_header().stamp;
    header.stamp.packet = index;
    header.codec = Codec::kBytes;
    header.byte_count = static_cast<std::uint16_t>(bytes.size());
    packet.resize(header.packet_size());
    EXPECT_EQ(write_data_packet(header, bytes, auth, packet), packet.size());
  }

  PacketFault open(base::ByteView cut, OpenedPacket& opened) const {
    return open_data_packet(cut, auth, opened, header.stamp.number - 9);
  }

  PacketAuth auth;
  DataHeader header;
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> packet;
};

TEST(BytesPacket, AddsFortyBytesOrEightMoreForTheSignature) {
  for (const Protection protection : kProtections) {
    for (const std::uint16_t index : {0, 1, 65535}) {
      const BytesExample example(protection, index);
      EXPECT_EQ(example.packet.size(), 1472U);  // fills an Ethernet frame
      OpenedPacket opened;
      ASSERT_EQ(example.open(example.packet, opened), PacketFault::kNone);
      const DataStamp& read = opened.header.stamp;
      EXPECT_EQ(read.is_signed, index == 0);
      EXPECT_EQ(read.message.signature, index == 0 ? example.header.stamp.message.signature : 0);
      EXPECT_TRUE(read.message.is_alike(example.header.stamp.message));
      EXPECT_EQ(read.number, example.header.stamp.number);
      EXPECT_EQ(read.packet, index);
      std::vector<std::uint8_t> scratch(example.bytes.size());
      const base::ByteView came = trusted_bytes(example.packet, opened, scratch);
      EXPECT_TRUE(std::ranges::equal(came, example.bytes));
    }
  }
}

TEST(BytesPacket, ThatWasCutShowsOnlyThatItWasSent) {
  for (const Protection protection : kProtections) {
    const BytesExample example(protection, 1);
    for (std::size_t size = 0; size < example.packet.size(); ++size) {
      const base::ByteView cut = base::ByteView(example.packet).first(size);
      OpenedPacket opened;
      const PacketFault fault = example.open(cut, opened);
      if (size < 32) {
        ASSERT_EQ(fault, size < 24 ? PacketFault::kTooShort : PacketFault::kCutInHead) << size;
        continue;
      }
      ASSERT_EQ(fault, PacketFault::kNone) << size;
      std::vector<std::uint8_t> read(example.bytes.size());
      EXPECT_EQ(copy_trusted_planes(cut, opened, read).bytes, 0U);
      EXPECT_TRUE(trusted_bytes(cut, opened, read).empty());
    }
  }
}

TEST(BytesPacket, WithAnyBitFlippedIsNotTrusted) {
  for (const Protection protection : kProtections) {
    for (const std::uint16_t index : {0, 1}) {
      const BytesExample example(protection, index);
      for (std::size_t bit = 0; bit < example.packet.size() * 8; ++bit) {
        std::vector<std::uint8_t> packet = example.packet;
        packet[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
        OpenedPacket opened;
        std::vector<std::uint8_t> read(SPILLWAY_MAX_PACKET);
        ASSERT_TRUE(
            example.open(packet, opened) != PacketFault::kNone ||
            (bit / 8 >= example.header.head_end() && trusted_bytes(packet, opened, read).empty()))
            << "bit " << bit;
      }
    }
  }
}

TEST(BytesPacket, EncryptedHidesItsBytes) {
  const BytesExample plain(Protection::kTags, 1);
  const BytesExample cipher(Protection::kEncryption, 1);
  std::size_t alike = 0;
  for (std::size_t at = plain.header.head_end(); at < plain.packet.size(); ++at) {
    alike += plain.packet[at] == cipher.packet[at] ? 1 : 0;
  }
  EXPECT_LT(alike, plain.packet.size() / 50);
}

// ------------------------------------------------------------------ protection

TEST(DataPacket, LongerThanItsHeaderSaysIsRefused) {
  Example example(Protection::kTags);
  example.packet.push_back(0);
  OpenedPacket opened;
  EXPECT_EQ(example.open(example.packet, opened), PacketFault::kTooLong);
}

TEST(DataPacket, TailSegmentsCannotBeMovedBetweenPackets) {
  Example a(Protection::kTags);
  DataHeader other = a.header;
  other.stamp.number += 1;
  std::vector<std::uint8_t> b(other.packet_size());
  write_data_packet(other, a.planes, a.auth, b);
  std::copy(b.begin() + static_cast<long>(other.head_end()), b.end(),
            a.packet.begin() + static_cast<long>(a.header.head_end()));
  OpenedPacket opened;
  ASSERT_EQ(a.open(a.packet, opened), PacketFault::kNone);
  std::vector<std::uint8_t> planes(a.planes.size());
  const TrustedPlanes trusted = copy_trusted_planes(a.packet, opened, planes);
  EXPECT_TRUE(trusted.corrupt_tail);
  EXPECT_EQ(trusted.bytes, a.header.head_bytes);
}

TEST(PacketAuth, BelongsToOneRunEpochAndDirection) {
  const Example example(Protection::kTags);
  RunKey run;
  run.bytes.fill(1);
  const auto fault_under = [&](const RunKey& key, const PacketDirection& course) {
    OpenedPacket opened;
    return open_data_packet(example.packet, PacketAuth::make(key, course).value(), opened,
                            example.header.stamp.number);
  };
  EXPECT_EQ(fault_under(run, {.epoch = 7, .from = 5, .to = 8}), PacketFault::kNone);
  EXPECT_EQ(fault_under(run, {.epoch = 8, .from = 5, .to = 8}), PacketFault::kHeadCheck);
  EXPECT_EQ(fault_under(run, {.epoch = 7, .from = 8, .to = 5}), PacketFault::kHeadCheck);
  EXPECT_EQ(fault_under(run, {.epoch = 7, .from = 5, .to = 9}), PacketFault::kHeadCheck);
  run.bytes[31] ^= 1;
  EXPECT_EQ(fault_under(run, {.epoch = 7, .from = 5, .to = 8}), PacketFault::kHeadCheck);
}

TEST(PacketAuth, OtherModesAreRefused) {
  const Example plain(Protection::kTags);
  const Example cipher(Protection::kEncryption);
  OpenedPacket opened;
  EXPECT_EQ(plain.open(cipher.packet, opened), PacketFault::kAuthMode);
  EXPECT_EQ(cipher.open(plain.packet, opened), PacketFault::kAuthMode);
}

TEST(PacketAuth, TheWholeNumberIsUnderTheCheck) {
  const Example example(Protection::kTags);
  OpenedPacket opened;
  EXPECT_EQ(open_data_packet(example.packet, example.auth, opened, 17), PacketFault::kHeadCheck);
}

TEST(PacketAuth, EncryptionHidesPlanesAndScale) {
  const Example plain(Protection::kTags);
  const Example cipher(Protection::kEncryption);
  const std::size_t scale = offsetof(spillway_planes_header, scale);
  EXPECT_FALSE(std::equal(plain.packet.begin() + scale, plain.packet.begin() + scale + 4,
                          cipher.packet.begin() + scale));
  std::size_t alike = 0;
  for (std::size_t at = plain.header.head_end(); at < plain.packet.size(); ++at) {
    alike += plain.packet[at] == cipher.packet[at] ? 1 : 0;
  }
  EXPECT_LT(alike, plain.packet.size() / 50);
  // The next packet with the same planes has different ciphertext.
  DataHeader again = cipher.header;
  again.stamp.number += 1;
  std::vector<std::uint8_t> packet(cipher.packet.size());
  write_data_packet(again, cipher.planes, cipher.auth, packet);
  EXPECT_FALSE(std::equal(packet.begin() + static_cast<long>(again.head_end()), packet.end(),
                          cipher.packet.begin() + static_cast<long>(again.head_end())));
}

TEST(PacketAuth, ShortSecretsAreRefusedWithASentence) {
  const base::Result<PacketAuth> auth = PacketAuth::of_secret(base::ByteView(kSecret).first(15));
  ASSERT_FALSE(auth.ok());
  EXPECT_NE(auth.status().message().find("at least 16"), std::string::npos);
}

TEST(Widen, TakesTheNearestNumber) {
  for (const std::uint64_t near :
       {std::uint64_t{0}, kPayloadRange - 1, kPayloadRange, 9 * kPayloadRange + 3}) {
    for (const std::int64_t step : {-1'000'000, -1, 0, 1, 1'000'000}) {
      const std::uint64_t number = near + static_cast<std::uint64_t>(step);
      if (step >= 0 || near >= 1'000'000) {
        EXPECT_EQ(widen_counter(low_counter(number), near), number) << near << " " << step;
      }
    }
  }
  EXPECT_EQ(widen(std::uint16_t{0xFFFF}, 0x10002), 0xFFFFU);
  EXPECT_EQ(widen(std::uint16_t{3}, 0xFFFE), 0x10003U);
  EXPECT_EQ(widen(std::uint32_t{0xFFFFFFFF}, 2), 0xFFFFFFFFU);  // values below zero do not exist
}

}  // namespace
}  // namespace spillway::wire
