// SPDX-License-Identifier: Apache-2.0
//
// Sum packets and a switch that adds, for tests: the C state machine (sum_slots.h) with its tables
// in vectors, and nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "switch/dataplane/sum_copies.h"

namespace spillway::dataplane {

using SumWords = std::array<std::uint64_t, SPILLWAY_SUM_WORDS>;

struct SumPacket {
  spillway_sum_image image = {};
  SumWords words = {};
  spillway_sum_route route = {};
  bool is_whole = true;  // not trimmed

  spillway_sum_header& header() { return image.fields; }
  const spillway_sum_header& header() const { return image.fields; }
  bool has(unsigned rank) const {
    const std::uint64_t word = rank < 64 ? image.fields.ranks[0] : image.fields.ranks[1];
    return (word >> (rank % 64) & 1) != 0;
  }
};

inline void put_ranks(spillway_sum_header& header, std::initializer_list<unsigned> ranks) {
  for (const unsigned rank : ranks) {
    (rank < 64 ? header.ranks[0] : header.ranks[1]) |= std::uint64_t{1} << (rank % 64);
  }
}

// A packet of chunk `chunk` of job 1, for rank 0; `need` ranks make it whole at each level.
inline SumPacket sum_packet(spillway_sum_kind kind, std::uint16_t chunk,
                            std::initializer_list<unsigned> ranks, std::uint8_t need) {
  SumPacket packet;
  spillway_sum_header& header = packet.header();
  header.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_SUM;
  header.common.job = 1;
  header.common.source =
      ranks.size() == 0 ? std::uint16_t{0} : static_cast<std::uint16_t>(*ranks.begin());
  header.common.packet = chunk;
  header.kind = kind;
  header.need[0] = need;
  header.need[1] = need;
  put_ranks(header, ranks);
  header.tag.low = 1000U + header.common.source;
  if (spillway_sum_has_words(kind) != 0) {
    for (std::size_t i = 0; i < packet.words.size(); ++i) {
      packet.words[i] = (header.common.source + 1) * 1000003ULL + i;
    }
  }
  return packet;
}

class SumSwitch {
 public:
  explicit SumSwitch(const spillway_sum_config& config)
      : config_(config), jobs_(SPILLWAY_SUM_JOBS), slots_(config.slots) {}

  // Decides about the packet and applies the decision.
  spillway_sum_decision take(SumPacket& packet, std::uint64_t now_ns, std::uint32_t port = 0) {
    spillway_sum_decision decision;
    spillway_sum_job* job = find_job(packet.header().common.job, now_ns, port);
    if (job == nullptr) {
      spillway_sum_say(&decision, SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_PAST_JOBS);
    } else {
      if (packet.header().kind == SPILLWAY_SUM_PART) {
        spillway_learn_member(job, &packet.image, &packet.route, port);
      }
      if (spillway_screen_sum(&config_, &packet.image, packet.is_whole ? 1 : 0, &decision) != 0) {
        ask_slot(*job, packet, now_ns, port, decision);
      }
    }
    ++counters_.outcomes[decision.outcome];
    counters_.lost_slots += spillway_sum_loses_slot(&decision) != 0 ? 1 : 0;
    return decision;
  }

  spillway_sum_job* find_job(std::uint16_t number, std::uint64_t now_ns, std::uint32_t port = 0) {
    const std::uint32_t name = spillway_sum_name(number);
    const std::uint32_t row =
        spillway_find_row(&directory_, name, static_cast<std::uint32_t>(now_ns >> 30), port);
    if (row == SPILLWAY_SUM_NO_JOB) {
      return nullptr;
    }
    spillway_open_job(&jobs_[row], row, name);
    return &jobs_[row];
  }

  // The slot that a packet's chunk may use; null if its job has none.
  spillway_sum_slot* slot_of(const SumPacket& packet, std::uint64_t now_ns,
                             std::uint32_t port = 0) {
    const spillway_sum_key key = spillway_sum_key_of(&packet.image);
    const spillway_sum_job* job = find_job(packet.header().common.job, now_ns, port);
    const std::uint32_t slot =
        job == nullptr ? SPILLWAY_SUM_NO_SLOT : spillway_sum_slot_of(&config_, job, &key);
    return slot == SPILLWAY_SUM_NO_SLOT ? nullptr : &slots_[slot];
  }

  // Loses all state, as after a restart.
  void forget() {
    directory_ = {};
    jobs_.assign(SPILLWAY_SUM_JOBS, {});
    slots_.assign(config_.slots, {});
  }

  spillway_sum_counters& counters() { return counters_; }
  std::uint64_t count(spillway_sum_outcome outcome) const { return counters_.outcomes[outcome]; }
  const std::vector<spillway_sum_slot>& slots() const { return slots_; }
  const std::vector<spillway_sum_job>& jobs() const { return jobs_; }

 private:
  void ask_slot(spillway_sum_job& job, SumPacket& packet, std::uint64_t now_ns, std::uint32_t port,
                spillway_sum_decision& decision) {
    const spillway_sum_key key = spillway_sum_key_of(&packet.image);
    std::uint32_t number = 0;
    if (spillway_place_sum(&config_, &job, &key, &packet.image, now_ns, port, &number, &decision) ==
        0) {
      return;
    }
    spillway_sum_slot& slot = slots_[number];
    spillway_decide_sum(&config_, &job, &key, now_ns, &slot, &packet.image, &packet.route,
                        &decision);
    spillway_move_words(slot.words, reinterpret_cast<__u8*>(packet.words.data()), decision.move);
    spillway_account_sum(&decision, &job, &jobs_[decision.row]);
  }

  spillway_sum_config config_;
  spillway_sum_directory directory_ = {};
  std::vector<spillway_sum_job> jobs_;
  std::vector<spillway_sum_slot> slots_;
  spillway_sum_counters counters_ = {};
};

}  // namespace spillway::dataplane
