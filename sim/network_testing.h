// SPDX-License-Identifier: Apache-2.0
//
// A stack for tests of the network. It sends each flow's packets as fast as the NIC takes them,
// expects no reply, and records the packets that arrive.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "sim/host.h"
#include "sim/packet.h"
#include "switch/dataplane/sum_words.h"

namespace spillway::sim {

struct Arrival {
  HostId from = 0;
  std::uint32_t flow = 0;
  std::uint32_t number = 0;
  std::uint32_t bytes = 0;
  std::uint8_t ecn = 0;
  std::uint8_t dscp = 0;
  bool corrupt = false;
  base::Instant at;
  std::vector<std::uint8_t> payload;
};

struct BlastOptions {
  std::uint32_t frame_bytes = 1'500;
  PacketKind kind = PacketKind::kSpillwayData;
  std::uint32_t labels = 1;    // used by packets in turn
  PacketPool* pool = nullptr;  // source of real payloads, each byte 0xA5; null: size-only
  bool keep_arrivals = true;
};

class BlastStack final : public HostStack {
 public:
  explicit BlastStack(const BlastOptions& options) : options_(options) {}

  void expect_flow(const Flow& flow, base::Instant /*now*/) override {
    expected.push_back(flow.id);
  }
  void start_flow(const Flow& flow, base::Instant /*now*/) override { flows_.push_back({flow, 0}); }

  void on_packet(Packet& packet, base::Instant now) override {
    ++received;
    if (!options_.keep_arrivals) {
      return;
    }
    Arrival arrival{packet.from, packet.tcp.flow, packet.tcp.sequence, packet.bytes,
                    packet.ecn,  packet.dscp,     packet.corrupt,      now,
                    {}};
    if (options_.pool != nullptr) {
      const auto bytes = options_.pool->payload(packet);
      arrival.payload.assign(bytes.begin(), bytes.end());
    }
    arrivals.push_back(std::move(arrival));
  }

  void on_timeout(base::Instant now) override {
    timeouts.push_back(now);
    timer.reset();
  }
  base::Instant next_timeout() const override { return timer.value_or(transport::kNever); }

  bool poll_transmit(base::Instant /*now*/, Packet& packet) override {
    if (flows_.empty()) {
      return false;
    }
    Sending& sending = flows_.front();
    fill(sending, packet);
    ++sending.sent;
    if (std::uint64_t{sending.sent} * options_.frame_bytes >= sending.flow.bytes) {
      flows_.pop_front();
    }
    return true;
  }

  std::uint64_t received = 0;
  std::vector<Arrival> arrivals;
  std::vector<FlowId> expected;
  std::vector<base::Instant> timeouts;
  std::optional<base::Instant> timer;

 private:
  struct Sending {
    Flow flow;
    std::uint32_t sent = 0;
  };

  void fill(const Sending& sending, Packet& packet) const {
    packet.to = sending.flow.to;
    packet.kind = options_.kind;
    packet.bytes = options_.frame_bytes;
    packet.label = sending.flow.id * options_.labels + sending.sent % options_.labels;
    packet.dscp = spillway_dscp_of_priority(sending.flow.priority);
    packet.importance = sending.flow.importance;
    packet.ecn = spillway_ecn_of_importance(sending.flow.importance);
    packet.tcp.flow = sending.flow.id;
    packet.tcp.sequence = sending.sent;
    if (options_.pool != nullptr) {
      const auto room =
          options_.pool->attach_payload(packet, options_.frame_bytes - kFrameHeaderBytes);
      std::ranges::fill(room, std::uint8_t{0xA5});
    }
  }

  BlastOptions options_;
  std::deque<Sending> flows_;
};

// Sum packets for tests: headers with the fields under test, and words computed from the
// contributing ranks, so that tests can verify sums.

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
