// SPDX-License-Identifier: Apache-2.0
//
// Switches that add, in a whole network: first in racks, then above them; and with all kinds of
// faults.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>

#include "base/random.h"
#include "sim/network.h"
#include "sim/network_testing.h"
#include "sim/scenario/scenario.h"

namespace spillway::sim {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Sends given packets to the destination in their header, and records what arrives.
class SumStack final : public HostStack {
 public:
  explicit SumStack(PacketPool& pool) : pool_(pool) {}

  void send(const SumFields& fields) { waiting_.push_back(fields); }

  void expect_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void start_flow(const Flow& /*flow*/, base::Instant /*now*/) override {}
  void on_timeout(base::Instant /*now*/) override {}
  base::Instant next_timeout() const override { return transport::kNever; }

  void on_packet(Packet& packet, base::Instant /*now*/) override {
    const base::MutableByteView bytes = pool_.payload(packet);
    came.emplace_back(bytes.begin(), bytes.end());
  }

  bool poll_transmit(base::Instant /*now*/, Packet& packet) override {
    if (waiting_.empty()) {
      return false;
    }
    const SumFields fields = waiting_.front();
    waiting_.pop_front();
    const Bytes bytes = sum_bytes(fields);
    packet.to = fields.destination;
    packet.kind = spillway_sum_has_words(fields.kind) != 0 ? PacketKind::kSpillwaySum
                                                           : PacketKind::kSpillwaySumControl;
    packet.bytes = static_cast<std::uint32_t>(bytes.size()) + kFrameHeaderBytes;
    std::ranges::copy(bytes, pool_.attach_payload(packet, bytes.size()).begin());
    return true;
  }

  std::vector<Bytes> came;

 private:
  PacketPool& pool_;
  std::deque<SumFields> waiting_;
};

struct SumNetwork {
  explicit SumNetwork(const std::string& text)
      : scenario(scenario::parse_scenario(text).value()),
        topology(scenario::build_topology(scenario).value()),
        network(topology, scenario.seed) {
    for (HostId host = 0; host < network.hosts(); ++host) {
      auto stack = std::make_unique<SumStack>(network.pool());
      stacks.push_back(stack.get());
      network.add_stack(host, std::move(stack));
    }
    for (const scenario::Fault& fault : scenario.faults) {
      const base::Status status = network.add_fault(fault);
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }

  // Sends the packet and runs the network until all that follows has happened.
  void send(const SumFields& fields) {
    stacks[fields.source]->send(fields);
    network.wake(fields.source);
    network.run_until(network.now() + base::microseconds(50));
  }

  std::uint64_t counted(std::string_view name, spillway_sum_outcome outcome) const {
    for (const AdderTotals& adder : network.adders()) {
      if (adder.name == name) {
        return adder.counters.outcomes[outcome];
      }
    }
    ADD_FAILURE() << name << " does not add";
    return 0;
  }

  scenario::Scenario scenario;
  scenario::Topology topology;
  Network network;
  std::vector<SumStack*> stacks;
};

// Racks of two: hosts 0 and 1 under leaf0, and so on.
constexpr std::string_view kRacks =
    "topology leaf-spine hosts=6 leaves=3 spines=1 rate=100gbit\n"
    "aggregate switch=leaf* level=0 slots=64\n"
    "aggregate switch=spine* level=1 slots=64\n";

SumFields part_of(std::uint16_t rank, std::uint16_t chunk) {
  SumFields part;
  part.source = rank;
  part.chunk = chunk;
  part.need = rank == 1 ? 1 : 2;  // the owner, rank 0, sends no part
  part.need_all = 4;
  return part;
}

TEST(SumLevels, RacksAreAddedUpFirstThenWhatConnectsThem) {
  SumNetwork world{std::string(kRacks)};
  for (std::uint16_t rank = 1; rank < 6; ++rank) {
    world.send(part_of(rank, 0));
  }
  const std::vector<Bytes>& came = world.stacks[0]->came;
  ASSERT_EQ(came.size(), 2U);
  EXPECT_EQ(image_of(came[0]).fields.ranks[0], 0b10U);
  EXPECT_EQ(image_of(came[1]).fields.ranks[0], 0b111100U);
  EXPECT_EQ(image_of(came[1]).fields.level, 2);
  EXPECT_TRUE(is_right_sum(came[0], part_of(1, 0)));
  EXPECT_TRUE(is_right_sum(came[1], part_of(2, 0)));
  EXPECT_EQ(world.counted("leaf1", SPILLWAY_SUM_DID_EMIT), 1U);
  EXPECT_EQ(world.counted("leaf2", SPILLWAY_SUM_DID_EMIT), 1U);
  EXPECT_EQ(world.counted("spine0", SPILLWAY_SUM_DID_EMIT), 1U);
  EXPECT_EQ(world.counted("leaf0", SPILLWAY_SUM_PAST_ALONE), 1U);
}

TEST(SumLevels, AResultIsMultipliedWhereWaysPart) {
  SumNetwork world{std::string(kRacks)};
  // Every rank is the last of its rack once, so that switches have seen all.
  for (std::uint16_t chunk = 0; chunk < 4; ++chunk) {
    for (std::uint16_t i = 0; i < 4; ++i) {
      world.send(part_of(static_cast<std::uint16_t>(2 + (i + chunk) % 4), chunk));
    }
    world.send(part_of(1, chunk));
  }
  SumFields result;
  result.kind = SPILLWAY_SUM_RESULT;
  result.destination = 1;
  result.ranks = 0b111111;
  result.recipients = 0b111110;
  result.marks = SPILLWAY_SUM_MULTIPLY;
  const std::uint64_t before = world.network.totals().sent;
  world.send(result);
  EXPECT_EQ(world.network.totals().sent, before + 1);  // once over the owner's link
  for (std::uint16_t rank = 1; rank < 6; ++rank) {
    const std::vector<Bytes>& came = world.stacks[rank]->came;
    ASSERT_EQ(came.size(), 1U) << rank;
    EXPECT_EQ(image_of(came[0]).fields.common.destination, rank);
    EXPECT_TRUE(is_right_sum(came[0], result)) << rank;
  }
}

// A minimal owner: takes sums that are disjoint from what it has, requests the rest, and at last
// has it repeated past all slots.
class Owner {
 public:
  explicit Owner(const SumFields& chunk, std::uint64_t wanted) : chunk_(chunk), wanted_(wanted) {}

  // Returns false if the packet is not the sum of the ranks it names.
  bool take(base::ByteView bytes) {
    const spillway_sum_header header = image_of(bytes).fields;
    if (bytes.size() != SPILLWAY_SUM_PACKET || header.common.packet != chunk_.chunk ||
        header.common.job != chunk_.job) {
      return true;
    }
    if (!is_right_sum(bytes, chunk_)) {
      return false;
    }
    have_ |= (header.ranks[0] & have_) == 0 ? header.ranks[0] : 0;
    return true;
  }

  std::uint64_t missing() const { return wanted_ & ~have_; }
  const SumFields& chunk() const { return chunk_; }

 private:
  SumFields chunk_;
  std::uint64_t wanted_;
  std::uint64_t have_ = 0;
};

struct Trouble {
  const char* name;
  const char* lines;
};

class SumTrouble : public testing::TestWithParam<Trouble> {};

// Jobs 1 and 2 have the same ranks. All hosts but the owner's send; there are few slots for many
// chunks.
TEST_P(SumTrouble, EveryPartCountsOnceOrIsMissing) {
  SumNetwork world(std::string(kRacks) + GetParam().lines);
  base::RandomSequence random(5);
  std::vector<Owner> owners;
  for (std::uint16_t job = 1; job <= 2; ++job) {
    for (std::uint16_t chunk = 0; chunk < 40; ++chunk) {
      SumFields fields = part_of(2, chunk);
      fields.job = job;
      fields.urgency = static_cast<std::uint8_t>(random.next_below(8));
      owners.emplace_back(fields, 0b111110);
    }
  }
  const auto send_missing = [&](const Owner& owner, std::uint8_t kind) {
    for (std::uint16_t rank = 1; rank < 6; ++rank) {
      if ((owner.missing() >> rank & 1) != 0) {
        SumFields part = owner.chunk();
        part.kind = kind;
        part.source = rank;
        part.need = rank == 1 ? 1 : 2;
        world.stacks[rank]->send(part);
        world.network.wake(rank);
      }
    }
  };
  const auto settle = [&] {
    world.network.run_until(world.network.now() + base::microseconds(200));
    for (Owner& owner : owners) {
      for (const Bytes& bytes : world.stacks[0]->came) {
        ASSERT_TRUE(owner.take(bytes));
      }
    }
    world.stacks[0]->came.clear();
  };
  for (const Owner& owner : owners) {
    send_missing(owner, SPILLWAY_SUM_PART);
  }
  settle();
  for (const Owner& owner : owners) {
    send_missing(owner, SPILLWAY_SUM_PART);  // dropped or duplicated
  }
  settle();
  for (const Owner& owner : owners) {
    for (const std::uint16_t rank : {2, 4}) {
      SumFields flush = owner.chunk();
      flush.kind = SPILLWAY_SUM_FLUSH;
      flush.source = 0;
      flush.destination = rank;
      flush.ranks = owner.missing();
      if (flush.ranks != 0) {
        world.stacks[0]->send(flush);
        world.network.wake(0);
      }
    }
  }
  settle();
  for (int round = 0; round < 40; ++round) {
    for (const Owner& owner : owners) {
      send_missing(owner, SPILLWAY_SUM_RETRANSMIT);
    }
    settle();
  }
  for (const Owner& owner : owners) {
    EXPECT_EQ(owner.missing(), 0U)
        << "job " << owner.chunk().job << " chunk " << owner.chunk().chunk;
  }
  EXPECT_EQ(world.network.pool().in_use(), 0U);
}

INSTANTIATE_TEST_SUITE_P(
    All, SumTrouble,
    testing::Values(Trouble{"none", ""},
                    Trouble{"loss",
                            "fault kind=loss link=leaf1->spine0 share=30%\n"
                            "fault kind=loss link=leaf0->host0 share=20%\n"
                            "fault kind=loss link=host4->leaf2 share=20%\n"},
                    Trouble{"copies",
                            "fault kind=duplicate link=host2->leaf1 share=50%\n"
                            "fault kind=duplicate link=leaf2->spine0 share=50%\n"
                            "fault kind=reorder link=leaf1->spine0 share=50% delay=30us\n"
                            "fault kind=reorder link=host5->leaf2 share=50% delay=30us\n"},
                    Trouble{"restarts",
                            "fault kind=restart switch=leaf1 from=3us\n"
                            "fault kind=restart switch=spine0 from=6us\n"
                            "fault kind=restart switch=leaf2 from=205us\n"},
                    Trouble{"cuts", "switch mode=trim queue=6k trim=206\n"}),
    [](const testing::TestParamInfo<Trouble>& info) { return info.param.name; });

TEST(SumLevels, ARestartOfASwitchThatIsNotThereIsRefused) {
  SumNetwork world{std::string(kRacks)};
  scenario::Fault fault;
  fault.kind = scenario::FaultKind::kRestart;
  EXPECT_NE(world.network.add_fault(fault).message().find("needs a switch"), std::string::npos);
  fault.switch_name = "leaf9";
  EXPECT_NE(world.network.add_fault(fault).message().find("leaf0"), std::string::npos);
}

}  // namespace
}  // namespace spillway::sim
