// SPDX-License-Identifier: Apache-2.0
//
// Sum packets for tests: headers with the fields under test, and words computed from the
// contributing ranks, so that tests can verify sums.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "switch/dataplane/sum_words.h"

namespace spillway::sim {

struct SumFields {
  std::uint8_t kind = SPILLWAY_SUM_PART;
  std::uint16_t job = 1;
  std::uint16_t epoch = 0;
  std::uint32_t operation = 0;
  std::uint16_t piece = 0;
  std::uint16_t chunk = 0;
  std::uint16_t owner = 0;
  std::uint16_t source = 0;
  std::uint16_t destination = 0;
  std::uint64_t ranks = 0;  // of the first 64; 0 in a packet with words: only the source
  std::uint64_t recipients = 0;
  std::uint8_t marks = 0;
  std::uint8_t level = 0;
  std::uint8_t urgency = 1;
  std::uint8_t need = 4;      // at level 0
  std::uint8_t need_all = 4;  // at level 1
  std::uint8_t path = 0;
};

// A rank's contribution to a word.
inline std::uint64_t contribution(std::uint32_t rank, const SumFields& fields, std::size_t word) {
  return (std::uint64_t{rank} + 1) * 1'000'003 + word * 7919 + fields.chunk * 31 +
         std::uint64_t{fields.job} * 104'729;
}

inline std::uint64_t sum_word(std::uint64_t ranks, const SumFields& fields, std::size_t word) {
  std::uint64_t sum = 0;
  for (std::uint32_t rank = 0; rank < 64; ++rank) {
    sum += (ranks >> rank & 1) != 0 ? contribution(rank, fields, word) : 0;
  }
  return sum;
}

inline spillway_sum_tag sum_tag(std::uint64_t ranks) {
  spillway_sum_tag tag = {};
  for (std::uint32_t rank = 0; rank < 64; ++rank) {
    if ((ranks >> rank & 1) != 0) {
      tag = spillway_add_tags(tag, {0xF234'5678'9101'1123ULL * (rank + 3), rank + 7ULL});
    }
  }
  return tag;
}

inline std::vector<std::uint8_t> sum_bytes(const SumFields& fields) {
  spillway_sum_image image = {};
  spillway_sum_header& header = image.fields;
  const bool has_words = spillway_sum_has_words(fields.kind) != 0;
  const std::uint64_t ranks = fields.ranks == 0 && has_words ? 1ULL << fields.source : fields.ranks;
  header.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_SUM;
  header.common.job = fields.job;
  header.common.epoch = fields.epoch;
  header.common.source = fields.source;
  header.common.destination = fields.destination;
  header.common.operation = fields.operation;
  header.common.piece = fields.piece;
  header.common.packet = fields.chunk;
  header.common.path = fields.path;
  header.kind = fields.kind;
  header.marks = fields.marks;
  header.level = fields.level;
  header.urgency = fields.urgency;
  header.owner = fields.owner;
  header.need[0] = fields.need;
  header.need[1] = fields.need_all;
  header.ranks[0] = ranks;
  header.recipients[0] = fields.recipients;
  header.tag = sum_tag(has_words ? ranks : 0);
  std::vector<std::uint8_t> bytes(spillway_sum_packet_size(fields.kind));
  spillway_store_sum_header(bytes.data(), &image);
  for (std::size_t i = 0; has_words && i < SPILLWAY_SUM_WORDS; ++i) {
    base::store_le(&bytes[sizeof(header) + 8 * i], sum_word(ranks, fields, i));
  }
  return bytes;
}

inline spillway_sum_image image_of(base::ByteView bytes) {
  spillway_sum_image image = {};
  spillway_load_sum_header(bytes.data(), &image);
  return image;
}

// True if the words and the tag are the sum of exactly the ranks that the header names.
inline bool is_right_sum(base::ByteView bytes, const SumFields& fields) {
  const spillway_sum_image image = image_of(bytes);
  const std::uint64_t ranks = image.fields.ranks[0];
  for (std::size_t i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
    if (base::load_le<std::uint64_t>(&bytes[sizeof(spillway_sum_header) + 8 * i]) !=
        sum_word(ranks, fields, i)) {
      return false;
    }
  }
  const spillway_sum_tag tag = sum_tag(ranks);
  return image.fields.tag.low == tag.low && image.fields.tag.high == tag.high;
}

}  // namespace spillway::sim
