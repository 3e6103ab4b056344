// SPDX-License-Identifier: Apache-2.0
#include "sim/sum_table.h"

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <memory>

#include "base/random.h"
#include "sim/network_testing.h"
#include "sim/switch_node.h"

namespace spillway::sim {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t kHosts = 8;

scenario::Adder adder_of(std::uint32_t slots, spillway_sum_policy policy, std::uint8_t level = 0) {
  scenario::Aggregation line;
  line.config.slots = slots;
  line.config.policy = policy;
  line.config.level = level;
  line.config.lease_us = 1000;
  line.config.pools = 2;
  return {0, line.config, {}};
}

struct Left {
  HostId to = 0;
  Bytes bytes;

  bool operator==(const Left&) const = default;
};

// A switch with one host per port; records what leaves.
class SwitchRig final : public Actor {
 public:
  explicit SwitchRig(const scenario::Adder& adder) : node_(pool_, {}, 1) {
    Routes routes(kHosts);
    for (PortNumber host = 0; host < kHosts; ++host) {
      ports_.push_back(std::make_unique<OutputPort>(
          "port", dataplane::default_port_config(SPILLWAY_PORT_DROP_TAIL), events_, pool_,
          LinkEnd{this, base::gigabits_per_second(10'000), base::Duration(), host}));
      node_.add_port(*ports_.back());
      routes.set(host, {&host, 1});
    }
    node_.set_routes(std::move(routes));
    node_.add_sums(adder);
  }

  // Sends a packet and returns what leaves at once, in order of the destinations.
  std::vector<Left> send(HostId from, HostId to, const Bytes& bytes, base::Instant now,
                         std::uint8_t ecn = 0) {
    const PacketIndex index = pool_.allocate();
    Packet& packet = pool_[index];
    packet.from = from;
    packet.to = to;
    packet.kind = bytes.size() > sizeof(spillway_sum_header) ? PacketKind::kSpillwaySum
                                                             : PacketKind::kSpillwaySumControl;
    packet.bytes = static_cast<std::uint32_t>(bytes.size()) + kFrameHeaderBytes;
    packet.sent_bytes = packet.bytes;
    packet.ecn = ecn;
    std::ranges::copy(bytes, pool_.attach_payload(packet, bytes.size()).begin());
    left_.clear();
    node_.on_event(index, now);
    while (events_.run_next(now + base::nanoseconds(100))) {
    }
    EXPECT_EQ(pool_.in_use(), 0U);
    std::ranges::stable_sort(left_, {}, &Left::to);
    return left_;
  }

  void on_event(std::uint64_t argument, base::Instant /*now*/) override {
    const auto index = static_cast<PacketIndex>(argument);
    const base::MutableByteView bytes = pool_.payload(pool_[index]);
    left_.push_back({pool_[index].to, Bytes(bytes.begin(), bytes.end())});
    EXPECT_EQ(pool_[index].bytes, bytes.size() + kFrameHeaderBytes);
    pool_.release(index);
  }

  void restart() { node_.restart(); }
  AdderTotals totals() const { return node_.sums()->totals(); }

 private:
  PacketPool pool_;
  EventQueue events_;
  std::vector<std::unique_ptr<OutputPort>> ports_;
  SwitchNode node_;
  std::vector<Left> left_;
};

// The C code of the dataplane on plain arrays, for comparison.
class PlainMachine {
 public:
  explicit PlainMachine(const spillway_sum_config& config)
      : config_(config), slots_(config.slots), jobs_(SPILLWAY_SUM_JOBS) {}

  std::vector<Left> send(HostId from, HostId to, Bytes bytes, base::Instant now,
                         std::uint8_t ecn = 0) {
    const auto now_ns = static_cast<std::uint64_t>(now.since_zero().count());
    spillway_sum_image image = image_of(bytes);
    if (bytes.size() < sizeof(spillway_sum_header) || spillway_is_valid_sum(&image.fields) == 0) {
      return {{to, bytes}};
    }
    image.fields.marks |= ecn == SPILLWAY_ECN_CE ? SPILLWAY_SUM_CONGESTED : 0;
    const std::uint32_t name = spillway_sum_name(image.fields.common.job);
    const std::uint32_t row =
        spillway_find_row(&directory_, name, static_cast<std::uint32_t>(now_ns >> 30), from);
    EXPECT_NE(row, static_cast<std::uint32_t>(SPILLWAY_SUM_NO_JOB));
    spillway_sum_job& job = jobs_[row];
    spillway_open_job(&job, row, name);
    spillway_sum_route route = {};
    route.bytes[0] = from;
    route.bytes[1] = to;
    if (image.fields.kind == SPILLWAY_SUM_PART) {
      spillway_learn_member(&job, &image, &route, from);
    }
    const bool is_long = bytes.size() == spillway_sum_packet_size(image.fields.kind);
    const spillway_sum_key key = spillway_sum_key_of(&image);
    spillway_sum_decision decision = {};
    std::uint32_t number = 0;
    if (spillway_screen_sum(&config_, &image, is_long ? 1 : 0, &decision) != 0 &&
        spillway_place_sum(&config_, &job, &key, &image, now_ns, from, &number, &decision) != 0) {
      spillway_sum_slot& slot = slots_[number];
      spillway_decide_sum(&config_, &job, &key, now_ns, &slot, &image, &route, &decision);
      if (decision.action == SPILLWAY_SUM_TURN) {
        bytes.resize(SPILLWAY_SUM_PACKET);
      }
      spillway_move_words(slot.words, bytes.data() + sizeof(spillway_sum_header), decision.move);
      spillway_account_sum(&decision, &job, &jobs_[decision.row]);
    }
    ++outcomes[decision.outcome];
    return leave(job, decision, image, route, from, to, std::move(bytes));
  }

  std::map<unsigned, std::uint64_t> outcomes;

 private:
  static std::vector<Left> leave(spillway_sum_job& job, const spillway_sum_decision& decision,
                                 spillway_sum_image image, const spillway_sum_route& route,
                                 HostId from, HostId to, Bytes bytes) {
    if (decision.is_changed != 0) {
      spillway_store_sum_header(bytes.data(), &image);
    }
    switch (decision.action) {
      case SPILLWAY_SUM_ABSORB:
        return {};
      case SPILLWAY_SUM_TURN:
        return {{from, bytes}};
      case SPILLWAY_SUM_SWAP:
        return {{static_cast<HostId>(route.bytes[1]), bytes}};
      case SPILLWAY_SUM_TO_MANY:
        return copies(job, image, from, to, bytes);
      default:
        return {{to, bytes}};
    }
  }

  static std::vector<Left> copies(const spillway_sum_job& job, spillway_sum_image image,
                                  HostId from, HostId to, Bytes bytes) {
    std::vector<Left> out;
    spillway_sum_spread spread;
    spillway_sum_copy copy;
    spillway_begin_spread(&image, from, &spread);
    while (spillway_next_copy(&job, &spread, &copy) != 0) {
      spillway_sum_image own = image;
      spillway_dress_copy(&copy, &own);
      spillway_store_sum_header(bytes.data(), &own);
      out.push_back({static_cast<HostId>(job.members[copy.rank].route.bytes[0]), bytes});
    }
    if (spillway_keep_result(&spread, &image) != 0) {
      spillway_store_sum_header(bytes.data(), &image);
      out.push_back({to, bytes});
    }
    std::ranges::stable_sort(out, {}, &Left::to);
    return out;
  }

  spillway_sum_config config_;
  std::vector<spillway_sum_slot> slots_;
  spillway_sum_directory directory_ = {};
  std::vector<spillway_sum_job> jobs_;
};

struct Drawn {
  HostId from = 0;
  HostId to = 0;
  Bytes bytes;
  std::uint8_t ecn = 0;
};

// A packet of one of two jobs, whose rank r is on host r; few chunks, so that packets share slots.
Drawn draw_packet(base::RandomSequence& random) {
  SumFields fields;
  fields.job = static_cast<std::uint16_t>(1 + random.next_below(2));
  fields.operation = static_cast<std::uint32_t>(random.next_below(3));
  fields.chunk = static_cast<std::uint16_t>(random.next_below(6));
  fields.epoch = random.next_below(50) == 0 ? 1 : 2;
  fields.owner = static_cast<std::uint16_t>(fields.chunk % kHosts);
  fields.urgency = static_cast<std::uint8_t>(random.next_below(8));
  fields.need = 5;
  fields.path = random.next_below(4) == 0 ? 1 : 0;
  const std::uint64_t kind = random.next_below(20);
  const auto other =
      static_cast<std::uint16_t>((fields.owner + 1 + random.next_below(kHosts - 1)) % kHosts);
  fields.source = kind < 17 ? other : fields.owner;
  fields.destination = kind < 17 ? fields.owner : other;
  if (kind < 14) {
    fields.level = random.next_below(12) == 0 ? 1 : 0;
    fields.ranks = random.next_below(8) == 0 ? 1ULL << other | random.next_below(1 << kHosts) : 0;
  } else if (kind == 14) {
    fields.kind = SPILLWAY_SUM_RETRANSMIT;
  } else if (kind == 15) {
    fields.kind = SPILLWAY_SUM_WANT;
  } else if (kind < 19) {
    fields.kind = SPILLWAY_SUM_FLUSH;
    fields.ranks = random.next_below(2) == 0 ? 0xFF : random.next_below(256);
  } else {
    fields.kind = SPILLWAY_SUM_RESULT;
    fields.ranks = 0xFF;
    fields.recipients = random.next_below(1 << kHosts);
    fields.marks = SPILLWAY_SUM_MULTIPLY;
  }
  Drawn drawn{fields.source, fields.destination, sum_bytes(fields),
              static_cast<std::uint8_t>(random.next_below(9) == 0 ? SPILLWAY_ECN_CE : 0)};
  if (random.next_below(40) == 0) {
    drawn.bytes.resize(std::min<std::size_t>(drawn.bytes.size(), 164));  // cut on the way
  }
  return drawn;
}

class SumTablePolicies : public testing::TestWithParam<spillway_sum_policy> {};

TEST_P(SumTablePolicies, AHundredThousandPacketsLeaveAsTheMachineSays) {
  const scenario::Adder adder = adder_of(/*slots=*/12, GetParam());
  SwitchRig rig(adder);
  PlainMachine machine(adder.config);
  base::RandomSequence random(17);
  base::Instant now;
  for (int i = 0; i < 100'000; ++i) {
    now = now + base::microseconds(static_cast<std::int64_t>(1 + random.next_below(100)));
    const Drawn drawn = draw_packet(random);
    ASSERT_EQ(rig.send(drawn.from, drawn.to, drawn.bytes, now, drawn.ecn),
              machine.send(drawn.from, drawn.to, drawn.bytes, now, drawn.ecn))
        << "packet " << i;
  }
  const AdderTotals totals = rig.totals();
  for (unsigned outcome = 0; outcome < SPILLWAY_SUM_OUTCOMES; ++outcome) {
    EXPECT_EQ(totals.counters.outcomes[outcome], machine.outcomes[outcome])
        << sum_outcome_name(outcome);
  }
  EXPECT_GT(machine.outcomes[SPILLWAY_SUM_DID_EMIT], 0U);
  EXPECT_GT(machine.outcomes[SPILLWAY_SUM_DID_FLUSH], 0U);
  EXPECT_GT(totals.counters.copies, 0U);
}

INSTANTIATE_TEST_SUITE_P(All, SumTablePolicies,
                         testing::Values(SPILLWAY_SUM_STATIC, SPILLWAY_SUM_FIRST_COME,
                                         SPILLWAY_SUM_PREEMPTIVE));

constexpr base::Instant kNow{base::microseconds(10)};

TEST(SumTable, PartsBecomeOneSumForTheirOwner) {
  SwitchRig rig(adder_of(16, SPILLWAY_SUM_FIRST_COME));
  SumFields fields;
  fields.need = 3;
  std::vector<Left> left;
  for (const std::uint16_t rank : {1, 2, 3}) {
    EXPECT_TRUE(left.empty());
    fields.source = rank;
    left = rig.send(rank, 0, sum_bytes(fields), kNow);
  }
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].to, 0U);
  EXPECT_EQ(image_of(left[0].bytes).fields.ranks[0], 0b1110U);
  EXPECT_EQ(image_of(left[0].bytes).fields.marks, SPILLWAY_SUM_ADDED);
  EXPECT_TRUE(is_right_sum(left[0].bytes, fields));
}

TEST(SumTable, AFlushComesBackGrownWithWhatIsHeld) {
  SwitchRig rig(adder_of(16, SPILLWAY_SUM_FIRST_COME));
  SumFields part;
  part.source = 1;
  EXPECT_TRUE(rig.send(1, 0, sum_bytes(part), kNow).empty());
  SumFields flush;
  flush.kind = SPILLWAY_SUM_FLUSH;
  flush.destination = 2;
  flush.ranks = 0b1110;
  const std::vector<Left> left = rig.send(0, 2, sum_bytes(flush), kNow);
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].to, 0U);
  ASSERT_EQ(left[0].bytes.size(), SPILLWAY_SUM_PACKET);
  EXPECT_EQ(image_of(left[0].bytes).fields.ranks[0], 0b10U);
  EXPECT_TRUE(is_right_sum(left[0].bytes, part));
}

TEST(SumTable, AResultGoesToEveryRankThatWasHeardOfOnce) {
  SwitchRig rig(adder_of(16, SPILLWAY_SUM_FIRST_COME));
  SumFields part;
  for (const std::uint16_t rank : {1, 2, 3}) {
    part.source = rank;
    rig.send(rank, 0, sum_bytes(part), kNow);
  }
  SumFields result;
  result.kind = SPILLWAY_SUM_RESULT;
  result.ranks = 0b1111;
  result.recipients = 0b11110;  // rank 4 has sent nothing
  result.marks = SPILLWAY_SUM_MULTIPLY;
  result.destination = 1;
  const std::vector<Left> left = rig.send(0, 1, sum_bytes(result), kNow);
  ASSERT_EQ(left.size(), 3U);
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].to, i + 1);
    EXPECT_EQ(image_of(left[i].bytes).fields.common.destination, i + 1);
    EXPECT_TRUE(is_right_sum(left[i].bytes, result));
  }
  EXPECT_EQ(rig.totals().counters.copies, 3U);
  EXPECT_EQ(rig.totals().counters.unknown, 1U);
}

TEST(SumTable, ARestartLosesSlotsAndRanksAndNoSumIsWrongAfterIt) {
  SwitchRig rig(adder_of(16, SPILLWAY_SUM_PREEMPTIVE));
  SumFields part;
  part.need = 3;
  for (const std::uint16_t rank : {1, 2}) {
    part.source = rank;
    EXPECT_TRUE(rig.send(rank, 0, sum_bytes(part), kNow).empty());
  }
  EXPECT_EQ(rig.totals().held, 1U);
  rig.restart();
  EXPECT_EQ(rig.totals().held, 0U);
  part.source = 3;
  EXPECT_TRUE(rig.send(3, 0, sum_bytes(part), kNow).empty());
  SumFields flush;
  flush.kind = SPILLWAY_SUM_FLUSH;
  flush.destination = 3;
  flush.ranks = 0b1110;
  const std::vector<Left> left = rig.send(0, 3, sum_bytes(flush), kNow);
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(image_of(left[0].bytes).fields.ranks[0], 0b1000U);
  EXPECT_TRUE(is_right_sum(left[0].bytes, part));
  const AdderTotals totals = rig.totals();
  EXPECT_EQ(totals.counters.outcomes[SPILLWAY_SUM_DID_CLAIM], 2U);
  ASSERT_EQ(totals.jobs.size(), 1U);
  EXPECT_EQ(totals.jobs[0].counters.outcomes[SPILLWAY_SUM_DID_CLAIM], 2U);
}

TEST(SumTable, JobsThatShareScarceSlotsAreCountedApart) {
  scenario::Adder adder = adder_of(1, SPILLWAY_SUM_PREEMPTIVE);
  SwitchRig rig(adder);
  SumFields calm;
  calm.source = 1;
  SumFields urgent;
  urgent.job = 2;
  urgent.source = 2;
  urgent.owner = 5;
  urgent.destination = 5;
  urgent.urgency = 9;
  EXPECT_TRUE(rig.send(1, 0, sum_bytes(calm), kNow).empty());
  const std::vector<Left> evicted = rig.send(2, 5, sum_bytes(urgent), kNow);
  ASSERT_EQ(evicted.size(), 1U);
  EXPECT_EQ(evicted[0].to, 0U);
  EXPECT_TRUE(is_right_sum(evicted[0].bytes, calm));
  EXPECT_EQ(image_of(evicted[0].bytes).fields.common.job, 1U);
  const std::vector<Left> turned_away = rig.send(1, 0, sum_bytes(calm), kNow);
  ASSERT_EQ(turned_away.size(), 1U);
  EXPECT_NE(image_of(turned_away[0].bytes).fields.marks & SPILLWAY_SUM_COLLISION, 0);
  const AdderTotals totals = rig.totals();
  ASSERT_EQ(totals.jobs.size(), 2U);
  EXPECT_EQ(totals.jobs[0].job, 1U);
  EXPECT_EQ(totals.jobs[0].held, 0U);
  EXPECT_EQ(totals.jobs[0].counters.lost_slots, 1U);
  EXPECT_EQ(totals.jobs[0].counters.outcomes[SPILLWAY_SUM_DID_COLLISION], 1U);
  EXPECT_EQ(totals.jobs[1].held, 1U);
  EXPECT_EQ(totals.jobs[1].counters.outcomes[SPILLWAY_SUM_DID_EVICTION], 1U);
}

TEST(SumTable, AJobHoldsNoMoreThanItsLimitEvenAfterARestart) {
  scenario::Adder adder = adder_of(1024, SPILLWAY_SUM_FIRST_COME);
  adder.limits = {{.job = 1, .slots = 3}};
  SwitchRig rig(adder);
  for (const bool is_second : {false, true}) {
    for (std::uint16_t chunk = 0; chunk < 10; ++chunk) {
      SumFields part;
      part.source = 1;
      part.chunk = chunk;
      rig.send(1, 0, sum_bytes(part), kNow);
    }
    EXPECT_EQ(rig.totals().jobs.at(0).held, 3U) << is_second;
    rig.restart();
  }
  EXPECT_EQ(rig.totals().counters.outcomes[SPILLWAY_SUM_PAST_LIMIT], 14U);
}

}  // namespace
}  // namespace spillway::sim
