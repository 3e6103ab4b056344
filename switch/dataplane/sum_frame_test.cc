// SPDX-License-Identifier: Apache-2.0
#include "switch/dataplane/sum_frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "switch/dataplane/sum_copies.h"
#include "switch/dataplane/sum_testing.h"

namespace spillway::dataplane {
namespace {

using Frame = std::vector<std::uint8_t>;

// 0xFFFF for a correct IPv4 header.
std::uint32_t header_sum(const Frame& frame, std::size_t ip) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < SPILLWAY_IPV4_HEADER; i += 2) {
    sum += spillway_load_word(&frame[ip + i]);
  }
  return spillway_fold(sum);
}

// A frame from 02:..:0a, 10.0.0.10:1010 to 02:..:0b, 10.0.0.11:1011, for example.
Frame frame_of(const SumPacket& packet, unsigned tags, std::uint8_t from, std::uint8_t to) {
  Frame frame = {2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from};
  for (unsigned i = 0; i < tags; ++i) {
    frame.insert(frame.end(), {0x81, 0, 0, static_cast<std::uint8_t>(5 + i)});
  }
  frame.insert(frame.end(), {8, 0});
  const std::size_t ip = frame.size();
  const std::uint32_t payload = spillway_sum_packet_size(packet.header().kind);
  frame.insert(frame.end(), {0x45, 9 << 2 | SPILLWAY_ECN_ECT0, 0, 0, 0, 1, 0x40, 0, 64, 17, 0, 0});
  frame.insert(frame.end(), {10, 0, 0, from, 10, 0, 0, to, 3, from, 3, to, 0, 0, 0xAB, 0xCD});
  spillway_store_be16(&frame[ip + 2], 28 + payload);
  spillway_store_be16(&frame[ip + 24], 8 + payload);
  spillway_store_word(&frame[ip + 10], ~header_sum(frame, ip) & 0xFFFF);
  const std::size_t at = frame.size();
  frame.resize(at + payload);
  std::memcpy(&frame[at], &packet.image, sizeof(packet.image));
  if (spillway_sum_has_words(packet.header().kind) != 0) {
    std::memcpy(&frame[at + sizeof(packet.image)], packet.words.data(), SPILLWAY_SUM_WORD_BYTES);
  }
  return frame;
}

struct Found {
  bool is_found = false;
  spillway_layout layout = {};
  spillway_sum_image image = {};
  spillway_sum_frame sum = {};
};

Found find(const Frame& frame) {
  Found found;
  const __u8* end = frame.data() + frame.size();
  spillway_find_layout(frame.data(), end, &found.layout);
  found.is_found = spillway_find_sum(frame.data(), end, static_cast<std::uint32_t>(frame.size()),
                                     &found.layout, &found.image, &found.sum) != 0;
  return found;
}

Frame part_frame(unsigned tags = 0) {
  return frame_of(sum_packet(SPILLWAY_SUM_PART, 7, {1}, 3), tags, 10, 11);
}

spillway_sum_route route_of(const Frame& frame) {
  const Found found = find(frame);
  spillway_sum_route route;
  EXPECT_NE(spillway_read_route(frame.data(), frame.data() + frame.size(), &found.layout, &route),
            0);
  return route;
}

TEST(SumFrame, PacketsAreFoundBehindAllTags) {
  for (unsigned tags = 0; tags <= SPILLWAY_MAX_TAGS; ++tags) {
    const Found found = find(part_frame(tags));
    EXPECT_TRUE(found.is_found);
    EXPECT_EQ(found.sum.is_plain, 1);
    EXPECT_EQ(found.sum.has_words, 1);
    EXPECT_EQ(found.image.fields.common.packet, 7);
    EXPECT_EQ(found.image.fields.marks, 0);
  }
}

TEST(SumFrame, CutOnesHaveNoWordsAndBrokenOnesAreNone) {
  Frame cut = part_frame();
  cut.resize(300);
  EXPECT_FALSE(find(cut).is_found) << "its lengths tell what it was";
  spillway_store_be16(&cut[16], 300 - 14);
  spillway_store_be16(&cut[38], 300 - 34);
  EXPECT_TRUE(find(cut).is_found);
  EXPECT_EQ(find(cut).sum.has_words, 0);
  for (std::size_t size = 1; size < 42 + sizeof(spillway_sum_header); ++size) {
    Frame shorter(cut.begin(), cut.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(find(shorter).is_found);
  }
  Frame unknown = part_frame();
  unknown[42 + 32] = SPILLWAY_SUM_KINDS;
  EXPECT_FALSE(find(unknown).is_found);
  Frame high = part_frame();
  high[42 + 34] = SPILLWAY_SUM_LEVELS + 1;
  EXPECT_FALSE(find(high).is_found);
}

TEST(SumFrame, CongestionBecomesAMark) {
  Frame frame = part_frame();
  const Found found = find(frame);
  spillway_set_traffic_class(frame.data(), frame.data() + frame.size(), &found.layout,
                             9 << 2 | SPILLWAY_ECN_CE);
  EXPECT_EQ(find(frame).image.fields.marks, SPILLWAY_SUM_CONGESTED);
}

TEST(SumFrame, ARouteMakesAFrameOneOfItsOwn) {
  for (unsigned tags = 0; tags <= SPILLWAY_MAX_TAGS; ++tags) {
    const SumPacket packet = sum_packet(SPILLWAY_SUM_PART, 7, {1}, 3);
    Frame frame = frame_of(packet, tags, 10, 11);
    Frame other = frame_of(packet, tags, 20, 21);
    const Found found = find(frame);
    const spillway_sum_route route = route_of(other);
    EXPECT_EQ(route.shape, 14 + 4 * tags);
    spillway_write_route(frame.data(), frame.data() + frame.size(), &found.layout, &route);
    spillway_store_word(&other[route.shape + 26U], 0);  // no UDP checksum
    EXPECT_EQ(frame, other);
    EXPECT_EQ(header_sum(frame, route.shape), 0xFFFFU);
  }
}

TEST(SumFrame, ReaddressedItGoesToTheRoutesSource) {
  const SumPacket result = sum_packet(SPILLWAY_SUM_RESULT, 7, {1}, 3);
  Frame frame = frame_of(result, 1, 10, 11);
  Frame expected = frame_of(result, 1, 10, 33);
  const Found found = find(frame);
  const spillway_sum_route route = route_of(frame_of(result, 1, 33, 10));
  spillway_readdress(frame.data(), frame.data() + frame.size(), &found.layout, &route);
  spillway_store_word(&expected[18 + 26], 0);
  EXPECT_EQ(frame, expected);
  EXPECT_EQ(header_sum(frame, 18), 0xFFFFU);
}

TEST(SumFrame, ATurnedFlushIsAPartFromWhomItWasFor) {
  const SumPacket part = sum_packet(SPILLWAY_SUM_PART, 7, {1}, 3);
  Frame frame = frame_of(sum_packet(SPILLWAY_SUM_FLUSH, 7, {1}, 3), 0, 10, 11);
  Frame expected = frame_of(part, 0, 11, 10);
  const Found found = find(frame);
  frame.resize(found.layout.ip + SPILLWAY_SUM_DATAGRAM);
  __u8* data = frame.data();
  const __u8* end = data + frame.size();
  spillway_write_sum(data, end, &found.layout, &part.image);
  spillway_turn_route(data, end, &found.layout);
  spillway_set_sum_lengths(data, end, &found.layout, 5 << 2);
  std::memcpy(spillway_sum_words_in(data, end, &found.layout), part.words.data(),
              SPILLWAY_SUM_WORD_BYTES);
  spillway_set_traffic_class(expected.data(), expected.data() + expected.size(), &found.layout,
                             5 << 2);
  spillway_store_word(&expected[14 + 26], 0);
  EXPECT_EQ(frame, expected);
  EXPECT_EQ(header_sum(frame, 14), 0xFFFFU);
}

TEST(SumFrame, PortsTreatSumsAsDataAndTheRestAsControl) {
  for (unsigned kind = 1; kind < SPILLWAY_SUM_KINDS; ++kind) {
    SumPacket packet = sum_packet(static_cast<spillway_sum_kind>(kind), 7, {1}, 3);
    packet.header().common.service = 5;
    Frame frame = frame_of(packet, 0, 10, 11);
    spillway_layout layout;
    spillway_frame read;
    spillway_read_frame(frame.data(), frame.data() + frame.size(),
                        static_cast<std::uint32_t>(frame.size()), &layout, &read);
    const bool has_words = spillway_sum_has_words(static_cast<__u8>(kind)) != 0;
    EXPECT_EQ(read.flags,
              SPILLWAY_FRAME_SUM | (has_words ? SPILLWAY_FRAME_TRIMMABLE : SPILLWAY_FRAME_CONTROL));
    EXPECT_EQ(read.importance, has_words ? 5 : 0);
  }
}

// ------------------------------------------------------------------ copies

constexpr std::uint32_t kUplink = 9;

struct Copy {
  std::uint32_t rank;
  std::uint32_t port;
  std::uint64_t recipients;
  bool operator==(const Copy&) const = default;
};

class SumCopies : public testing::Test {
 protected:
  SumCopies() { spillway_open_job(job_.get(), 3, spillway_sum_name(1)); }

  void hear(std::uint16_t source, std::initializer_list<unsigned> ranks, std::uint32_t port,
            std::uint8_t level = 0) {
    SumPacket packet = sum_packet(SPILLWAY_SUM_PART, 0, ranks, 8);
    packet.header().common.source = source;
    packet.header().level = level;
    packet.route.bytes[0] = source;
    spillway_learn_member(job_.get(), &packet.image, &packet.route, port);
  }

  std::vector<Copy> copies(std::uint64_t recipients, std::uint32_t came_in_at) {
    result_ = sum_packet(SPILLWAY_SUM_RESULT, 0, {}, 8);
    result_.header().marks = SPILLWAY_SUM_MULTIPLY;
    result_.header().recipients[0] = recipients;
    spillway_begin_spread(&result_.image, came_in_at, &spread_);
    std::vector<Copy> made;
    spillway_sum_copy copy;
    while (spillway_next_copy(job_.get(), &spread_, &copy) != 0) {
      made.push_back({copy.rank, copy.port, copy.recipients[0]});
    }
    return made;
  }

  std::unique_ptr<spillway_sum_job> job_ = std::make_unique<spillway_sum_job>();
  SumPacket result_;
  spillway_sum_spread spread_ = {};
};

TEST_F(SumCopies, EveryKnownRankGetsOne) {
  for (std::uint16_t rank = 1; rank < 4; ++rank) {
    hear(rank, {rank}, rank);
  }
  const std::vector<Copy> expected = {{1, 1, 2}, {2, 2, 4}, {3, 3, 8}};
  EXPECT_EQ(copies(0b1110, 7), expected);
  EXPECT_EQ(spread_.unknown[0], 0U);
}

TEST_F(SumCopies, NoneGoesBackOrToStrangers) {
  hear(1, {1}, 1);
  hear(2, {2}, 2);
  const std::vector<Copy> expected = {{2, 2, 4}};
  EXPECT_EQ(copies(0b100110, 1), expected);
  EXPECT_EQ(spread_.unknown[0], 0b100010U);
}

// Ranks whose parts come together get one copy, addressed to a known one of them. Ranks known to be
// elsewhere get their own.
TEST_F(SumCopies, RacksGetOne) {
  hear(4, {3, 4, 5}, kUplink, 1);
  hear(1, {1}, 1);
  hear(5, {5}, 5);
  const std::vector<Copy> expected = {{1, 1, 0b10}, {4, kUplink, 0b11000}, {5, 5, 0b100000}};
  EXPECT_EQ(copies(0b111010, 7), expected);
  EXPECT_EQ(spread_.unknown[0], 0U);
}

TEST_F(SumCopies, EpochsAndJobsAreToldApart) {
  hear(1, {1}, 1);
  SumPacket later = sum_packet(SPILLWAY_SUM_RESULT, 0, {}, 8);
  later.header().common.epoch = 1;
  later.header().recipients[0] = 2;
  spillway_sum_copy copy;
  spillway_begin_spread(&later.image, 7, &spread_);
  EXPECT_EQ(spillway_next_copy(job_.get(), &spread_, &copy), 0);
  spillway_open_job(job_.get(), 3, spillway_sum_name(2));
  EXPECT_TRUE(copies(2, 7).empty());
}

TEST_F(SumCopies, OtherPathsTeachNothing) {
  SumPacket packet = sum_packet(SPILLWAY_SUM_PART, 0, {1}, 8);
  packet.header().common.path = 2;
  spillway_learn_member(job_.get(), &packet.image, &packet.route, 1);
  EXPECT_TRUE(copies(2, 7).empty());
}

TEST_F(SumCopies, ASourceThatIsNotInItsOwnSumTeachesNothing) {
  hear(1, {2}, 1);
  EXPECT_TRUE(copies(0b110, 7).empty());
}

TEST_F(SumCopies, MovedRanksAreFoundAnew) {
  hear(1, {1}, 1);
  hear(1, {1}, 2);
  const std::vector<Copy> expected = {{1, 2, 2}};
  EXPECT_EQ(copies(2, 7), expected);
}

TEST_F(SumCopies, OneRecipientsCopyIsAPlainResult) {
  SumPacket result = sum_packet(SPILLWAY_SUM_RESULT, 0, {}, 8);
  result.header().marks = SPILLWAY_SUM_MULTIPLY;
  result.header().recipients[0] = 0b110;
  const spillway_sum_copy many = {.recipients = {0b110, 0}, .together = {}, .rank = 2, .port = 1};
  spillway_dress_copy(&many, &result.image);
  EXPECT_EQ(result.header().marks, SPILLWAY_SUM_MULTIPLY);
  EXPECT_EQ(result.header().recipients[0], 0b110U);
  EXPECT_EQ(result.header().common.destination, 2);
  const spillway_sum_copy one = {.recipients = {0, 1}, .together = {}, .rank = 64, .port = 1};
  spillway_dress_copy(&one, &result.image);
  EXPECT_EQ(result.header().marks, 0);
  EXPECT_EQ(result.header().recipients[0], 0U);
  EXPECT_EQ(result.header().recipients[1], 0U);
  EXPECT_EQ(result.header().common.destination, 64);
}

// Locations can be forged: copies must not circulate.
TEST_F(SumCopies, CopiesOfCopiesEnd) {
  SumPacket result = sum_packet(SPILLWAY_SUM_RESULT, 3, {1, 2, 3}, 8);
  result.header().marks = SPILLWAY_SUM_MULTIPLY;
  spillway_sum_copy copy = {};
  copy.rank = 1;
  copy.recipients[0] = 0b110;
  for (unsigned copies = 0; copies <= SPILLWAY_SUM_LEVELS; ++copies) {
    EXPECT_EQ(result.header().marks, SPILLWAY_SUM_MULTIPLY) << copies;
    spillway_dress_copy(&copy, &result.image);
  }
  EXPECT_EQ(result.header().marks, 0);
  EXPECT_EQ(result.header().recipients[0], 0U);
}

TEST_F(SumCopies, TheResultGoesOnForWhomItIsAddressedTo) {
  EXPECT_TRUE(copies(0b110, 7).empty());
  result_.header().common.destination = 1;
  EXPECT_NE(spillway_keep_result(&spread_, &result_.image), 0);
  EXPECT_EQ(result_.header().recipients[0], 0b110U);
  hear(1, {1}, 1);
  EXPECT_EQ(copies(0b110, 7).size(), 1U);
  result_.header().common.destination = 1;
  EXPECT_EQ(spillway_keep_result(&spread_, &result_.image), 0);
}

// spillway_passes_by() decides as spillway_screen_sum() does, for packets that teach nothing.
TEST_F(SumCopies, PassingByIsNoOtherDecision) {
  const spillway_sum_config config = {.slots = 1,
                                      .lease_us = 1,
                                      .pools = 1,
                                      .policy = SPILLWAY_SUM_STATIC,
                                      .level = 0,
                                      .reserved = {}};
  for (unsigned kind = 1; kind < SPILLWAY_SUM_KINDS; ++kind) {
    for (unsigned level = 0; level <= SPILLWAY_SUM_LEVELS; ++level) {
      for (const int has_words : {0, 1}) {
        SumPacket packet = sum_packet(static_cast<spillway_sum_kind>(kind), 3, {1}, 8);
        packet.header().level = static_cast<std::uint8_t>(level);
        spillway_sum_decision passing;
        spillway_sum_decision screened;
        if (spillway_passes_by(&config, &packet.image, has_words, &passing) != 0) {
          EXPECT_EQ(spillway_screen_sum(&config, &packet.image, has_words, &screened), 0);
          EXPECT_EQ(passing.outcome, screened.outcome);
          EXPECT_TRUE(kind != SPILLWAY_SUM_PART || spillway_teaches(&packet.image) == 0);
        }
      }
    }
  }
}

}  // namespace

}  // namespace spillway::dataplane
