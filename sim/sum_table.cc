// SPDX-License-Identifier: Apache-2.0
#include "sim/sum_table.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace spillway::sim {
namespace {

std::uint64_t nanoseconds_of(base::Instant now) {
  return static_cast<std::uint64_t>(now.since_zero().count());
}

std::uint32_t seconds_of(base::Instant now) {
  return static_cast<std::uint32_t>(nanoseconds_of(now) >> 30);  // approximate, like the kernel's
                                                                 // switch
}

// Readdressing a frame keeps its VLAN tag, so a copy must stay within the VLAN.
bool is_same_vlan(const spillway_sum_route& a, const spillway_sum_route& b) {
  return a.shape == b.shape && a.bytes[1] >> 32 == b.bytes[1] >> 32;
}

void count_outcome(const spillway_sum_decision& decision, spillway_sum_counters& counters) {
  ++counters.outcomes[decision.outcome];
}

}  // namespace

// The state of one packet's pass through the table.
struct SumTable::Visit {
  PacketIndex index;
  std::uint32_t port;
  base::Instant now;
  SumEnvelope packet;
  spillway_sum_key key;
  spillway_sum_route route;
  spillway_sum_job* job = nullptr;
  std::uint32_t slot = SPILLWAY_SUM_NO_SLOT;
  spillway_sum_decision decision = {};
};

SumTable::SumTable(PacketPool& pool, const scenario::Adder& adder)
    : pool_(&pool), config_(adder.config), limits_(adder.limits) {
  forget();
}

void SumTable::forget() {
  slots_.assign(config_.slots, {});
  places_.assign(config_.slots, {});
  directory_ = {};
  jobs_.assign(SPILLWAY_SUM_JOBS, {});
  homes_.assign(kMembers, {});
  held_ = 0;
  for (const scenario::JobSlots& limit : limits_) {
    fix_job(limit);
  }
}

void SumTable::open_job(std::uint32_t row, std::uint32_t name) {
  if (jobs_[row].name != name) {
    by_row_[row] = &by_job_[static_cast<std::uint16_t>(name - 1)];
    spillway_open_job(&jobs_[row], row, name);
  }
}

void SumTable::fix_job(const scenario::JobSlots& limit) {
  const std::uint32_t name = spillway_sum_name(limit.job);
  const std::uint32_t row = spillway_find_row(&directory_, name, 0, 0);
  SPILLWAY_CHECK(row != SPILLWAY_SUM_NO_JOB);
  open_job(row, name);
  directory_.seen_s[row] = SPILLWAY_SUM_JOB_FIXED;
  jobs_[row].limit = limit.slots;
}

std::span<const PacketIndex> SumTable::take(PacketIndex index, std::uint32_t port,
                                            base::Instant now) {
  leaving_.clear();
  const std::optional<SumEnvelope> packet = SumEnvelope::open(*pool_, index);
  if (!packet) {
    leaving_.push_back(index);
    return leaving_;
  }
  Visit visit{.index = index,
              .port = port,
              .now = now,
              .packet = *packet,
              .key = spillway_sum_key_of(&packet->image()),
              .route = packet->route()};
  if (reach_slot(visit)) {
    decide(visit);
  }
  count(visit);
  carry_out(visit);
  return leaving_;
}

spillway_sum_job* SumTable::find_job(std::uint16_t job, base::Instant now, std::uint32_t port) {
  const std::uint32_t name = spillway_sum_name(job);
  const std::uint32_t row = spillway_find_row(&directory_, name, seconds_of(now), port);
  if (row == SPILLWAY_SUM_NO_JOB) {
    return nullptr;
  }
  open_job(row, name);
  return &jobs_[row];
}

// False if the packet bypasses the slots or is of another epoch.
bool SumTable::reach_slot(Visit& visit) {
  const spillway_sum_image& image = visit.packet.image();
  visit.job = find_job(image.fields.common.job, visit.now, visit.port);
  if (visit.job == nullptr || !visit.packet.is_plain()) {
    spillway_sum_say(&visit.decision, SPILLWAY_SUM_FORWARD,
                     visit.packet.is_plain() ? SPILLWAY_SUM_PAST_JOBS : SPILLWAY_SUM_PAST_IPV6);
    return false;
  }
  if (image.fields.kind == SPILLWAY_SUM_PART) {
    learn(visit);
  }
  if (spillway_screen_sum(&config_, &image, visit.packet.has_words() ? 1 : 0, &visit.decision) ==
      0) {
    return false;
  }
  return spillway_place_sum(&config_, visit.job, &visit.key, &image, nanoseconds_of(visit.now),
                            visit.port, &visit.slot, &visit.decision) != 0;
}

void SumTable::learn(const Visit& visit) {
  const spillway_sum_header& header = visit.packet.image().fields;
  const std::uint32_t rank = header.common.source % SPILLWAY_SUM_RANKS;
  spillway_learn_member(visit.job, &visit.packet.image(), &visit.route, visit.port);
  if (header.common.path == 0 && (header.ranks[rank / 64] >> rank % 64 & 1) != 0) {
    home(*visit.job, rank) = visit.packet.place();
  }
}

// Updates the slot and the packet, except the packet's addresses.
void SumTable::decide(Visit& visit) {
  spillway_sum_slot& slot = slots_[visit.slot];
  const std::uint8_t traffic_class = slot.route.traffic_class;
  spillway_decide_sum(&config_, visit.job, &visit.key, nanoseconds_of(visit.now), &slot,
                      &visit.packet.image(), &visit.route, &visit.decision);
  if (visit.decision.action == SPILLWAY_SUM_TURN) {
    visit.packet.turn(traffic_class);
  }
  if (visit.decision.move != SPILLWAY_SUM_MOVE_NONE) {
    spillway_move_words(slot.words, visit.packet.words(), visit.decision.move);
  }
  if (visit.decision.is_changed != 0) {
    visit.packet.write();
  }
  spillway_account_sum(&visit.decision, visit.job, &jobs_[visit.decision.row]);
  held_ += visit.decision.takes;
  held_ -= visit.decision.frees;
}

void SumTable::count(const Visit& visit) {
  count_outcome(visit.decision, all_);
  if (visit.job != nullptr) {
    count_outcome(visit.decision, *by_row_[visit.job->row]);
  }
  if (spillway_sum_loses_slot(&visit.decision) != 0) {
    ++all_.lost_slots;
    ++by_row_[visit.decision.row]->lost_slots;
  }
}

void SumTable::carry_out(Visit& visit) {
  switch (visit.decision.action) {
    case SPILLWAY_SUM_ABSORB:
      if (visit.decision.takes != 0) {
        places_[visit.slot] = visit.packet.place();
      }
      pool_->release(visit.index);
      return;
    case SPILLWAY_SUM_SWAP: {
      const SumPlace held = places_[visit.slot];
      places_[visit.slot] = visit.packet.place();
      visit.packet.go_by(visit.route, held);
      break;
    }
    case SPILLWAY_SUM_TO_MANY:
      spread(visit);
      return;
    default:
      break;
  }
  leaving_.push_back(visit.index);
}

void SumTable::spread(Visit& visit) {
  spillway_sum_spread spread;
  spillway_sum_copy copy;
  spillway_begin_spread(&visit.packet.image(), visit.port, &spread);
  while (spillway_next_copy(visit.job, &spread, &copy) != 0) {
    if (is_same_vlan(visit.job->members[copy.rank].route, visit.route)) {
      send_copy(visit, copy);
    } else {
      spillway_put_rank(spread.unknown, copy.rank);
    }
  }
  const std::uint64_t unknown =
      spillway_count_bits(spread.unknown[0]) + spillway_count_bits(spread.unknown[1]);
  all_.unknown += unknown;
  by_row_[visit.job->row]->unknown += unknown;
  if (spillway_keep_result(&spread, &visit.packet.image()) != 0) {
    visit.packet.write();
    leaving_.push_back(visit.index);
  } else {
    pool_->release(visit.index);
  }
}

void SumTable::send_copy(const Visit& visit, const spillway_sum_copy& copy) {
  const PacketIndex made = pool_->duplicate(visit.index);
  std::optional<SumEnvelope> envelope = SumEnvelope::open(*pool_, made);
  SPILLWAY_CHECK(envelope.has_value());
  spillway_dress_copy(&copy, &envelope->image());
  envelope->write();
  envelope->address_to(visit.job->members[copy.rank].route, home(*visit.job, copy.rank));
  leaving_.push_back(made);
  ++all_.copies;
  ++by_row_[visit.job->row]->copies;
}

AdderTotals SumTable::totals() const {
  AdderTotals totals;
  totals.config = config_;
  totals.counters = all_;
  totals.held = held_;
  for (const auto& [job, counters] : by_job_) {
    const auto row = std::ranges::find(jobs_, spillway_sum_name(job), &spillway_sum_job::name);
    totals.jobs.push_back({.job = job,
                           .held = row == jobs_.end() ? 0 : row->held,
                           .limit = row == jobs_.end() ? 0 : row->limit,
                           .counters = counters});
  }
  return totals;
}

}  // namespace spillway::sim
