// SPDX-License-Identifier: Apache-2.0
//
// Runs random sum packets through the state machine of sum_slots.h and through a model that uses
// sets and maps instead of bits and hashes; both must agree. Then checks the purpose: whatever is
// lost, repeated, evicted, flushed or forgotten, each part counts once or is known to be missing.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <tuple>

#include "switch/dataplane/sum_testing.h"

namespace spillway::dataplane {
namespace {

constexpr int kPackets = 100'000;
constexpr std::uint64_t kStart = 1'000'000'000;

using Ranks = std::set<unsigned>;
using Chunk = std::tuple<unsigned, unsigned, unsigned>;  // job, epoch, number

Ranks ranks_of(const SumPacket& packet) {
  Ranks ranks;
  for (unsigned rank = 0; rank < SPILLWAY_SUM_RANKS; ++rank) {
    if (packet.has(rank)) {
      ranks.insert(rank);
    }
  }
  return ranks;
}

bool includes(const Ranks& outer, const Ranks& inner) {
  return std::ranges::includes(outer, inner);
}

bool are_disjoint(const Ranks& a, const Ranks& b) {
  return std::ranges::none_of(a, [&b](unsigned rank) { return b.contains(rank); });
}

// Every rank has a port of its own.
unsigned port_of(const SumPacket& packet) {
  return packet.header().common.source;
}

Chunk chunk_of(const SumPacket& packet) {
  const spillway_packet_header& common = packet.header().common;
  return {common.job, common.epoch, common.packet};
}

spillway_sum_config config_of(spillway_sum_policy policy, std::uint32_t slots) {
  return {.slots = slots,
          .lease_us = 2'000,
          .pools = 2,
          .policy = static_cast<std::uint8_t>(policy),
          .level = 0,
          .reserved = {}};
}

// ------------------------------------------------------------------ the model

struct Expected {
  unsigned action = SPILLWAY_SUM_FORWARD;
  unsigned outcome = 0;
  std::optional<Ranks> ranks{};  // of the packet that leaves
  std::uint64_t word = 0;        // its first word
};

class Model {
 public:
  explicit Model(spillway_sum_policy policy, std::uint64_t lease_ns)
      : policy_(policy), lease_ns_(lease_ns) {}

  // `slot`: the one that the state machine would use.
  Expected take(const SumPacket& packet, std::uint32_t slot, std::uint64_t now) {
    const Chunk chunk = chunk_of(packet);
    switch (packet.header().kind) {
      case SPILLWAY_SUM_PART:
        return is_of_other_epoch(chunk, port_of(packet), now)
                   ? Expected{SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_DID_STALE}
                   : take_part(packet, chunk, slots_[slot], now);
      case SPILLWAY_SUM_FLUSH:
        return take_flush(packet, chunk, slots_[slot]);
      case SPILLWAY_SUM_RESULT:
        if (slots_[slot].state != kEmpty && slots_[slot].chunk == chunk) {
          slots_[slot].state = kOver;
          slots_[slot].since = now;
        }
        return {SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_DID_RESULT};
      default:
        return {SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_PAST_REPEAT};
    }
  }

 private:
  enum State { kEmpty, kBusy, kDone, kFlushed, kOver };
  struct Slot {
    State state = kEmpty;
    Chunk chunk{};
    Ranks ranks;
    std::uint64_t word = 0;
    unsigned need = 0;
    unsigned urgency = 0;
    std::uint64_t since = 0;
  };
  // Its last sign of life: a part that came in at another port than the previous one.
  struct Epoch {
    unsigned number = 0;
    unsigned port = 0;
    bool is_confirmed = false;
    std::uint64_t seen = 0;
  };

  bool is_of_other_epoch(const Chunk& chunk, unsigned port, std::uint64_t now) {
    const auto [job, epoch, number] = chunk;
    const auto [at, is_new] = epochs_.try_emplace(job, Epoch{epoch, port, false, now});
    Epoch& present = at->second;
    if (epoch != present.number) {
      if (present.is_confirmed && now - present.seen <= lease_ns_) {
        return true;
      }
      present = {epoch, port, false, now};
    } else if (port != present.port &&
               (!present.is_confirmed || now - present.seen > lease_ns_ / 8)) {
      present = {epoch, port, true, now};
    }
    return false;
  }

  static bool is_whole(unsigned need, std::size_t ranks) { return need != 0 && ranks >= need; }
  bool is_old(const Slot& slot, std::uint64_t now) const { return now > slot.since + lease_ns_; }

  Expected take_part(const SumPacket& packet, const Chunk& chunk, Slot& slot, std::uint64_t now) {
    const bool is_same = slot.state != kEmpty && slot.chunk == chunk;
    if (is_same && (slot.state == kBusy || !is_old(slot, now))) {
      return meet_own(packet, slot);
    }
    if (is_whole(packet.header().need[0], ranks_of(packet).size())) {
      return {SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_PAST_ALONE, ranks_of(packet), packet.words[0]};
    }
    if (slot.state != kBusy) {
      claim(packet, chunk, slot, now);
      return {SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_CLAIM};
    }
    return meet_other(packet, chunk, slot, now);
  }

  static void claim(const SumPacket& packet, const Chunk& chunk, Slot& slot, std::uint64_t now) {
    slot = {kBusy,
            chunk,
            ranks_of(packet),
            packet.words[0],
            packet.header().need[0],
            packet.header().urgency,
            now};
  }

  static Expected meet_own(const SumPacket& packet, Slot& slot) {
    const Ranks ranks = ranks_of(packet);
    const Expected on{SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_DID_LATE, ranks, packet.words[0]};
    if (slot.state == kFlushed) {
      return on;
    }
    if (slot.state == kOver || (slot.state == kBusy && includes(slot.ranks, ranks))) {
      return {SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_DUPLICATE};
    }
    if (includes(slot.ranks, ranks)) {
      return {SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_REEMIT, slot.ranks, slot.word};
    }
    if (!are_disjoint(slot.ranks, ranks)) {
      return {SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_DID_OVERLAP, ranks, packet.words[0]};
    }
    if (slot.state == kDone) {
      return on;
    }
    slot.ranks.insert(ranks.begin(), ranks.end());
    slot.word += packet.words[0];
    if (!is_whole(slot.need, slot.ranks.size())) {
      return {SPILLWAY_SUM_ABSORB, SPILLWAY_SUM_DID_ADD};
    }
    slot.state = kDone;
    return {SPILLWAY_SUM_EMIT, SPILLWAY_SUM_DID_EMIT, slot.ranks, slot.word};
  }

  Expected meet_other(const SumPacket& packet, const Chunk& chunk, Slot& slot, std::uint64_t now) {
    const bool was_sent_before = (packet.header().common.flags & SPILLWAY_FLAG_RETRANSMIT) != 0;
    const bool takes = policy_ == SPILLWAY_SUM_PREEMPTIVE &&
                       packet.header().urgency > slot.urgency &&
                       !(was_sent_before && is_whole(slot.need, slot.ranks.size() + 1));
    if (is_old(slot, now) || takes) {
      const Expected out{SPILLWAY_SUM_SWAP,
                         is_old(slot, now) ? SPILLWAY_SUM_DID_EXPIRED : SPILLWAY_SUM_DID_EVICTION,
                         slot.ranks, slot.word};
      claim(packet, chunk, slot, now);
      return out;
    }
    slot.urgency /= policy_ == SPILLWAY_SUM_PREEMPTIVE ? 2 : 1;
    return {SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_DID_COLLISION, ranks_of(packet), packet.words[0]};
  }

  static Expected take_flush(const SumPacket& packet, const Chunk& chunk, Slot& slot) {
    const bool is_held = (slot.state == kBusy || slot.state == kDone) && slot.chunk == chunk;
    if (!is_held) {
      return {SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_DID_NOT_HELD};
    }
    slot.state = kFlushed;
    if (!includes(ranks_of(packet), slot.ranks)) {
      return {SPILLWAY_SUM_FORWARD, SPILLWAY_SUM_DID_NOT_HELD};
    }
    return {SPILLWAY_SUM_TURN, SPILLWAY_SUM_DID_FLUSH, slot.ranks, slot.word};
  }

  spillway_sum_policy policy_;
  std::uint64_t lease_ns_;
  std::map<std::uint32_t, Slot> slots_;
  std::map<unsigned, Epoch> epochs_;
};

class SumPolicies : public testing::TestWithParam<spillway_sum_policy> {
 protected:
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }

  SumPacket random_packet(int index) {
    constexpr spillway_sum_kind kRare[] = {SPILLWAY_SUM_RETRANSMIT, SPILLWAY_SUM_FLUSH,
                                           SPILLWAY_SUM_RESULT, SPILLWAY_SUM_WANT};
    const spillway_sum_kind kind = below(6) == 0 ? kRare[below(4)] : SPILLWAY_SUM_PART;
    SumPacket packet = sum_packet(kind, static_cast<std::uint16_t>(below(8)), {below(5)},
                                  static_cast<std::uint8_t>(below(20) == 0 ? below(5) : 3));
    spillway_sum_header& header = packet.header();
    header.common.job = static_cast<std::uint16_t>(below(4));
    header.common.epoch = static_cast<std::uint8_t>(index / 10'000 + (below(50) == 0 ? 0 : 1));
    header.common.flags = below(4) == 0 ? SPILLWAY_FLAG_RETRANSMIT : 0;
    header.urgency = static_cast<std::uint8_t>(below(16));
    header.ranks[0] |= below(6) == 0 || kind == SPILLWAY_SUM_FLUSH ? below(32) : 0;
    header.ranks[1] = below(30) == 0 ? 1 : 0;
    packet.words[0] = random_();
    return packet;
  }

  std::mt19937_64 random_{20'25};
};

TEST_P(SumPolicies, DoWhatTheModelDoes) {
  const spillway_sum_config config = config_of(GetParam(), 16);
  SumSwitch machine(config);
  Model model(GetParam(), config.lease_us * 1000ULL);
  std::uint64_t now = kStart;
  for (int i = 0; i < kPackets; ++i) {
    now += below(20'000);
    SumPacket packet = random_packet(i);
    const auto slot = machine.slot_of(packet, now, port_of(packet)) - machine.slots().data();
    const Expected expected = model.take(packet, static_cast<std::uint32_t>(slot), now);
    const spillway_sum_decision met = machine.take(packet, now, port_of(packet));
    ASSERT_EQ(met.action, expected.action) << "packet " << i;
    ASSERT_EQ(met.outcome, expected.outcome) << "packet " << i;
    if (expected.ranks) {
      ASSERT_EQ(ranks_of(packet), *expected.ranks) << "packet " << i;
      ASSERT_EQ(packet.words[0], expected.word) << "packet " << i;
    }
  }
  EXPECT_GT(machine.count(SPILLWAY_SUM_DID_EMIT), 1000U);
  EXPECT_GT(machine.count(SPILLWAY_SUM_DID_STALE), 100U);
}

// ------------------------------------------------------------------ end to end

// Every rank's part of every chunk is sent, and sent again, over links that lose and duplicate,
// through a switch that sometimes forgets. The owner takes what is disjoint from what it has.
class Owner {
 public:
  void take(const SumPacket& packet) {
    Ranks& have = have_[chunk_of(packet)];
    const Ranks ranks = ranks_of(packet);
    if (are_disjoint(have, ranks)) {
      have.insert(ranks.begin(), ranks.end());
      sums_[chunk_of(packet)] += packet.words[0];
    }
  }
  Ranks missing(const Chunk& chunk, unsigned ranks) {
    Ranks missing;
    for (unsigned rank = 1; rank <= ranks; ++rank) {
      if (!have_[chunk].contains(rank)) {
        missing.insert(rank);
      }
    }
    return missing;
  }
  std::uint64_t sum(const Chunk& chunk) { return sums_[chunk]; }

 private:
  std::map<Chunk, Ranks> have_;
  std::map<Chunk, std::uint64_t> sums_;
};

std::uint64_t word_of(const Chunk& chunk, unsigned rank) {
  return (std::get<0>(chunk) * 1000 + std::get<2>(chunk)) * 1'000'003ULL + rank;
}

class Lossy {
 public:
  Lossy(const spillway_sum_config& config, std::uint64_t seed) : switch_(config), random_(seed) {}

  // Sends a packet to the owner, who gets it once, twice or not at all.
  void send(SumPacket packet, Owner& owner) {
    now_ += below(50'000);
    if (below(400) == 0) {
      switch_.forget();
    }
    for (unsigned times = below(10) == 0 ? 2 : below(10) == 0 ? 0 : 1; times > 0; --times) {
      SumPacket copy = packet;
      const unsigned action = switch_.take(copy, now_, port_of(copy)).action;
      const bool is_sum =
          copy.header().kind == SPILLWAY_SUM_PART || copy.header().kind == SPILLWAY_SUM_RETRANSMIT;
      if (action != SPILLWAY_SUM_ABSORB && is_sum && below(8) != 0) {
        owner.take(copy);
      }
    }
  }
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  SumSwitch& machine() { return switch_; }

 private:
  SumSwitch switch_;
  std::mt19937_64 random_;
  std::uint64_t now_ = kStart;
};

constexpr unsigned kRanks = 6;

SumPacket packet_of(spillway_sum_kind kind, const Chunk& chunk, const Ranks& ranks) {
  SumPacket packet = sum_packet(kind, static_cast<std::uint16_t>(std::get<2>(chunk)), {}, kRanks);
  packet.header().common.job = static_cast<std::uint16_t>(std::get<0>(chunk));
  packet.words = {};
  for (const unsigned rank : ranks) {
    packet.header().common.source = static_cast<std::uint16_t>(rank);
    packet.header().common.destination = static_cast<std::uint16_t>(rank);
    put_ranks(packet.header(), {rank});
    packet.words[0] += word_of(chunk, rank);
  }
  return packet;
}

TEST_P(SumPolicies, PartsCountOnceOrAreKnownToBeMissing) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Lossy network(config_of(GetParam(), 5), seed);
    Owner owner;
    std::vector<Chunk> chunks;
    for (unsigned i = 0; i < 40; ++i) {
      chunks.emplace_back(i % 3, 0, i);
    }
    for (int round = 0; round < 60; ++round) {
      for (const Chunk& chunk : chunks) {
        const unsigned rank = 1 + network.below(kRanks);
        SumPacket part = packet_of(SPILLWAY_SUM_PART, chunk, {rank});
        part.header().urgency = static_cast<std::uint8_t>(network.below(256));
        network.send(part, owner);
        const Ranks missing = owner.missing(chunk, kRanks);
        if (network.below(8) == 0 && !missing.empty()) {
          network.send(packet_of(SPILLWAY_SUM_FLUSH, chunk, missing), owner);
        }
        if (round > 50 && !missing.empty()) {
          network.send(packet_of(SPILLWAY_SUM_RETRANSMIT, chunk, {*missing.begin()}), owner);
        }
      }
    }
    for (const Chunk& chunk : chunks) {
      std::uint64_t expected = 0;
      const Ranks missing = owner.missing(chunk, kRanks);
      for (unsigned rank = 1; rank <= kRanks; ++rank) {
        expected += missing.contains(rank) ? 0 : word_of(chunk, rank);
      }
      EXPECT_EQ(owner.sum(chunk), expected) << "seed " << seed;
    }
    EXPECT_GT(network.machine().count(SPILLWAY_SUM_DID_ADD), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SumPolicies,
                         testing::Values(SPILLWAY_SUM_STATIC, SPILLWAY_SUM_FIRST_COME,
                                         SPILLWAY_SUM_PREEMPTIVE));

}  // namespace
}  // namespace spillway::dataplane
