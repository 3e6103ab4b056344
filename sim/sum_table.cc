// SPDX-License-Identifier: Apache-2.0
#include "sim/sum_table.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/check.h"

namespace spillway::sim {

// ------------------------------------------------------------------ packets

namespace {

// Like spillway_find_sum(), for a UDP payload.
bool find_in_payload(base::ByteView payload, spillway_sum_image& image, spillway_sum_frame& sum) {
  if (payload.size() < sizeof(spillway_sum_header)) {
    return false;
  }
  spillway_load_sum_header(payload.data(), &image);
  if (spillway_version_of(image.fields.common.version_type) != SPILLWAY_WIRE_VERSION ||
      spillway_type_of(image.fields.common.version_type) != SPILLWAY_TYPE_SUM ||
      spillway_is_valid_sum(&image.fields) == 0) {
    return false;
  }
  sum.is_plain = 1;
  sum.has_words = payload.size() == spillway_sum_packet_size(image.fields.kind) ? 1 : 0;
  return true;
}

}  // namespace

std::optional<SumPacketView> SumPacketView::open(PacketPool& pool, PacketIndex index) {
  SumPacketView view(pool, pool[index]);
  return view.read() ? std::optional(view) : std::nullopt;
}

bool SumPacketView::read() {
  const base::ByteView all = bytes();
  if (all.empty()) {
    return false;
  }
  if (is_frame()) {
    spillway_find_layout(begin(), end(), &layout_);
    if (spillway_find_sum(begin(), end(), static_cast<std::uint32_t>(all.size()), &layout_, &image_,
                          &sum_) == 0) {
      return false;
    }
  } else if (!find_in_payload(all, image_, sum_)) {
    return false;
  }
  // A frame's own traffic class is written when it leaves the network.
  if (packet_->ecn == SPILLWAY_ECN_CE) {
    image_.fields.marks |= SPILLWAY_SUM_CONGESTED;
  }
  return true;
}

std::uint8_t* SumPacketView::payload() const {
  return is_frame() ? begin() + layout_.transport + SPILLWAY_UDP_HEADER : begin();
}

std::uint8_t* SumPacketView::words() {
  return payload() + sizeof(spillway_sum_header);
}

spillway_sum_route SumPacketView::route() const {
  spillway_sum_route route = {};
  if (is_frame()) {
    spillway_read_route(begin(), end(), &layout_, &route);
  } else {
    // As distinct from each other as the routes of frames.
    route.bytes[0] = packet_->from;
    route.bytes[1] = packet_->to;
  }
  route.traffic_class = static_cast<std::uint8_t>(packet_->dscp << 2 | packet_->ecn);
  return route;
}

SumAddress SumPacketView::address() const {
  return {packet_->from, packet_->to, packet_->label, packet_->stack};
}

void SumPacketView::write() {
  if (is_frame()) {
    spillway_write_sum(begin(), end(), &layout_, &image_);
  } else {
    spillway_store_sum_header(payload(), &image_);
  }
  packet_->priority = spillway_priority_of(image_.fields.common.service);
  packet_->importance = spillway_importance_of(image_.fields.common.service);
}

void SumPacketView::set_traffic_class(std::uint8_t traffic_class) {
  packet_->dscp = traffic_class >> 2;
  packet_->ecn = traffic_class & 0x03;
}

void SumPacketView::forward_as(const spillway_sum_route& route, const SumAddress& address) {
  if (is_frame()) {
    spillway_write_route(begin(), end(), &layout_, &route);
  }
  set_traffic_class(route.traffic_class);
  packet_->from = address.from;
  packet_->to = address.to;
  packet_->label = address.label;
  packet_->stack = address.stack;
}

void SumPacketView::address_to(const spillway_sum_route& route, const SumAddress& address) {
  if (is_frame()) {
    spillway_readdress(begin(), end(), &layout_, &route);
  }
  packet_->to = address.from;
  packet_->stack = address.stack;
}

void SumPacketView::turn(std::uint8_t traffic_class) {
  const auto before = static_cast<std::uint32_t>(payload() - begin());
  pool_->resize_payload(*packet_, before + SPILLWAY_SUM_PACKET);
  packet_->kind = PacketKind::kSpillwaySum;
  packet_->sent_bytes = packet_->bytes;
  if (is_frame()) {
    spillway_turn_route(begin(), end(), &layout_);
    spillway_set_sum_lengths(begin(), end(), &layout_, traffic_class);
  }
  set_traffic_class(traffic_class);
  std::swap(packet_->from, packet_->to);
}

// ------------------------------------------------------------------ counters

namespace {

constexpr std::array<std::string_view, SPILLWAY_SUM_OUTCOMES> kNames = {
    "claims",      "adds",         "emits",        "duplicates",     "reemits",        "collisions",
    "evictions",   "expired",      "overlaps",     "late",           "flushes",        "not_held",
    "results",     "stale",        "passed_alone", "passed_again",   "passed_level",   "passed_cut",
    "passed_ipv6", "passed_limit", "passed_jobs",  "passed_invalid", "passed_no_slots"};

}  // namespace

std::string_view sum_outcome_name(std::size_t outcome) {
  SPILLWAY_CHECK(outcome < kNames.size());
  return kNames[outcome];
}

// ------------------------------------------------------------------ the table

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

// One packet's pass through the table.
struct SumTable::Pass {
  PacketIndex index;
  std::uint32_t port;
  base::Instant now;
  SumPacketView packet;
  spillway_sum_key key;
  spillway_sum_route route;
  spillway_sum_job* job = nullptr;
  std::uint32_t slot = SPILLWAY_SUM_NO_SLOT;
  spillway_sum_decision decision = {};
};

SumTable::SumTable(PacketPool& pool, const scenario::Adder& adder)
    : pool_(&pool), config_(adder.config), limits_(adder.limits) {
  reset();
}

void SumTable::reset() {
  slots_.assign(config_.slots, {});
  claim_addresses_.assign(config_.slots, {});
  directory_ = {};
  jobs_.assign(SPILLWAY_SUM_JOBS, {});
  member_addresses_.assign(kMembers, {});
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
  const std::optional<SumPacketView> packet = SumPacketView::open(*pool_, index);
  if (!packet) {
    leaving_.push_back(index);
    return leaving_;
  }
  Pass pass{.index = index,
            .port = port,
            .now = now,
            .packet = *packet,
            .key = spillway_sum_key_of(&packet->image()),
            .route = packet->route()};
  if (reach_slot(pass)) {
    decide(pass);
  }
  count(pass);
  carry_out(pass);
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
bool SumTable::reach_slot(Pass& pass) {
  const spillway_sum_image& image = pass.packet.image();
  pass.job = find_job(image.fields.common.job, pass.now, pass.port);
  if (pass.job == nullptr || !pass.packet.is_plain()) {
    spillway_sum_say(&pass.decision, SPILLWAY_SUM_FORWARD,
                     pass.packet.is_plain() ? SPILLWAY_SUM_PAST_JOBS : SPILLWAY_SUM_PAST_IPV6);
    return false;
  }
  if (image.fields.kind == SPILLWAY_SUM_PART) {
    learn(pass);
  }
  if (spillway_screen_sum(&config_, &image, pass.packet.has_words() ? 1 : 0, &pass.decision) == 0) {
    return false;
  }
  return spillway_place_sum(&config_, pass.job, &pass.key, &image, nanoseconds_of(pass.now),
                            pass.port, &pass.slot, &pass.decision) != 0;
}

void SumTable::learn(const Pass& pass) {
  const spillway_sum_header& header = pass.packet.image().fields;
  const std::uint32_t rank = header.common.source % SPILLWAY_SUM_RANKS;
  spillway_learn_member(pass.job, &pass.packet.image(), &pass.route, pass.port);
  if (header.common.path == 0 && (header.ranks[rank / 64] >> rank % 64 & 1) != 0) {
    member_address(*pass.job, rank) = pass.packet.address();
  }
}

// Updates the slot and the packet, except the packet's addresses.
void SumTable::decide(Pass& pass) {
  spillway_sum_slot& slot = slots_[pass.slot];
  const std::uint8_t traffic_class = slot.route.traffic_class;
  spillway_decide_sum(&config_, pass.job, &pass.key, nanoseconds_of(pass.now), &slot,
                      &pass.packet.image(), &pass.route, &pass.decision);
  if (pass.decision.action == SPILLWAY_SUM_TURN) {
    pass.packet.turn(traffic_class);
  }
  if (pass.decision.move != SPILLWAY_SUM_MOVE_NONE) {
    spillway_move_words(slot.words, pass.packet.words(), pass.decision.move);
  }
  if (pass.decision.is_changed != 0) {
    pass.packet.write();
  }
  spillway_account_sum(&pass.decision, pass.job, &jobs_[pass.decision.row]);
  held_ += pass.decision.takes;
  held_ -= pass.decision.frees;
}

void SumTable::count(const Pass& pass) {
  count_outcome(pass.decision, all_);
  if (pass.job != nullptr) {
    count_outcome(pass.decision, *by_row_[pass.job->row]);
  }
  if (spillway_sum_loses_slot(&pass.decision) != 0) {
    ++all_.lost_slots;
    ++by_row_[pass.decision.row]->lost_slots;
  }
}

void SumTable::carry_out(Pass& pass) {
  switch (pass.decision.action) {
    case SPILLWAY_SUM_ABSORB:
      if (pass.decision.takes != 0) {
        claim_addresses_[pass.slot] = pass.packet.address();
      }
      pool_->release(pass.index);
      return;
    case SPILLWAY_SUM_SWAP: {
      const SumAddress held = claim_addresses_[pass.slot];
      claim_addresses_[pass.slot] = pass.packet.address();
      pass.packet.forward_as(pass.route, held);
      break;
    }
    case SPILLWAY_SUM_TO_MANY:
      spread(pass);
      return;
    default:
      break;
  }
  leaving_.push_back(pass.index);
}

void SumTable::spread(Pass& pass) {
  spillway_sum_spread spread;
  spillway_sum_copy copy;
  spillway_begin_spread(&pass.packet.image(), pass.port, &spread);
  while (spillway_next_copy(pass.job, &spread, &copy) != 0) {
    if (is_same_vlan(pass.job->members[copy.rank].route, pass.route)) {
      send_copy(pass, copy);
    } else {
      spillway_put_rank(spread.unknown, copy.rank);
    }
  }
  const std::uint64_t unknown =
      spillway_count_bits(spread.unknown[0]) + spillway_count_bits(spread.unknown[1]);
  all_.unknown += unknown;
  by_row_[pass.job->row]->unknown += unknown;
  if (spillway_keep_result(&spread, &pass.packet.image()) != 0) {
    pass.packet.write();
    leaving_.push_back(pass.index);
  } else {
    pool_->release(pass.index);
  }
}

void SumTable::send_copy(const Pass& pass, const spillway_sum_copy& copy) {
  const PacketIndex made = pool_->duplicate(pass.index);
  std::optional<SumPacketView> view = SumPacketView::open(*pool_, made);
  SPILLWAY_CHECK(view.has_value());
  spillway_dress_copy(&copy, &view->image());
  view->write();
  view->address_to(pass.job->members[copy.rank].route, member_address(*pass.job, copy.rank));
  leaving_.push_back(made);
  ++all_.copies;
  ++by_row_[pass.job->row]->copies;
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
