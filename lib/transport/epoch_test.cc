// SPDX-License-Identifier: Apache-2.0
//
// Ports that move from one epoch to the next, with other peers: packets that are still in flight,
// or were recorded, mean nothing any more.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "transport/datagram_port.h"
#include "transport/exchange_testing.h"

namespace spillway::transport {
namespace {

constexpr std::uint16_t kJob = 3;
constexpr std::uint16_t kRanks = 3;
constexpr std::uint32_t kPackets = 30;
constexpr std::uint32_t kPacketBytes = 720;
constexpr base::Duration kDelay = base::microseconds(10);
constexpr base::Duration kPatience = base::seconds(1);
constexpr std::uint64_t kEpochTurn = std::uint64_t{1} << 16;

using Bytes = std::vector<std::uint8_t>;

// Planes that say which epoch they belong to.
class EpochPlanes final : public PayloadSource {
 public:
  std::size_t write(const wire::DataStamp& stamp, const wire::PacketAuth& auth,
                    base::MutableByteView out) override {
    return wire::write_data_packet(test_header(stamp), Bytes(kTestPlanesBytes, content), auth, out);
  }
  std::uint8_t content = 0;
};

class EpochSink final : public PayloadSink {
 public:
  unsigned take(const wire::OpenedPacket& packet, base::ByteView bytes) override {
    const Bytes planes = test_planes(packet, bytes);
    wrong += planes.size() - std::ranges::count(planes, content);
    return whole_test_planes(planes);
  }
  std::uint8_t content = 0;
  std::uint64_t wrong = 0;
};

// One process: a port that outlives epochs.
struct Process {
  static EndpointConfig config_of(std::uint16_t rank, std::uint64_t first_number) {
    EndpointConfig config;
    config.rank = rank;
    config.first_number = first_number;
    return config;
  }
  Process(std::uint16_t rank_, std::uint64_t first_number)
      : rank(rank_), port(config_of(rank_, first_number), SessionConfig()) {}

  std::uint64_t refused_by_check() const {
    return std::accumulate(port.faults().begin(), port.faults().end(), std::uint64_t{0});
  }
  const EndpointCounters& counters() const { return port.endpoint().counters(); }

  std::uint16_t rank;
  DatagramPort port;
  EpochPlanes source;
  EpochSink sink;
  std::size_t received = 0;  // messages, whole
  std::size_t sent = 0;
};

// A datagram, and the rank it goes to.
struct Datagram {
  std::uint16_t to = 0;
  Bytes bytes;
};

// The processes of one job, joined by a delay.
class Cluster {
 public:
  explicit Cluster(std::uint64_t first_number = 0) : first_number_(first_number) {
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      members_[rank] = make_process(rank);
    }
  }

  Process& operator[](std::uint16_t rank) { return *members_[rank]; }
  // Replaces the rank's process; returns the old one.
  std::unique_ptr<Process> replace(std::uint16_t rank) {
    return std::exchange(members_[rank], make_process(rank));
  }

  void begin_epoch(std::uint64_t number) {
    Epoch epoch{.job = kJob, .number = number, .session = {}};
    epoch.session.key.bytes.fill(7);
    ++contents_;
    for (const auto& member : members_) {
      member->port.begin_epoch(epoch);
      member->source.content = member->sink.content = contents_;
      for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
        if (rank != member->rank) {
          EXPECT_TRUE(member->port.add_peer(rank, now_).ok());
        }
      }
    }
  }

  // A message from every rank to the next, with the same names in every epoch.
  void start_ring(std::uint64_t operation, wire::Phase phase = wire::Phase::kReduce) {
    for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
      start_message({.operation = operation, .source = rank, .phase = phase},
                    static_cast<std::uint16_t>((rank + 1) % kRanks));
    }
  }
  void start_message(const wire::MessageId& id, std::uint16_t to) {
    Process& sender = *members_[id.source];
    Process& receiver = *members_[to];
    EXPECT_TRUE(receiver.port.endpoint()
                    .expect({.id = id,
                             .packets = kPackets,
                             .packet_bytes = kPacketBytes,
                             .planes = kTestPlanes,
                             .loss = {.loss_bound_ppm = 0, .min_planes = kTestPlanes},
                             .sink = &receiver.sink},
                            now_)
                    .ok());
    EXPECT_TRUE(sender.port.endpoint()
                    .send({.id = id,
                           .to = to,
                           .packets = kPackets,
                           .packet_bytes = kPacketBytes,
                           .loss = {.loss_bound_ppm = 0},
                           .source = &sender.source},
                          now_)
                    .ok());
  }

  // Runs until nothing happens any more; every datagram is recorded.
  std::vector<Datagram> run() {
    std::vector<Datagram> recorded;
    const base::Instant end = now_ + kPatience;
    do {
      transmit(recorded);
    } while (step(end));
    return recorded;
  }
  // Takes what is about to leave; it is not delivered.
  std::vector<Datagram> intercept() {
    std::vector<Datagram> recorded;
    transmit(recorded);
    in_flight_.clear();
    return recorded;
  }
  void deliver(const std::vector<Datagram>& datagrams) {
    for (const Datagram& datagram : datagrams) {
      members_[datagram.to]->port.on_datagram(datagram.bytes, /*marked=*/false, now_);
    }
    take_events();
  }

  void expect_ring_arrived(std::size_t messages) {
    for (const auto& member : members_) {
      EXPECT_EQ(member->received, messages) << "rank " << member->rank;
      EXPECT_EQ(member->sink.wrong, 0U) << "rank " << member->rank;
    }
  }
  std::uint64_t other_epoch() const {
    std::uint64_t count = 0;
    for (const auto& member : members_) {
      count += member->counters().other_epoch;
    }
    return count;
  }
  std::uint64_t refused_by_check() const {
    std::uint64_t count = 0;
    for (const auto& member : members_) {
      count += member->refused_by_check();
    }
    return count;
  }
  std::uint64_t taken() const {
    std::uint64_t count = 0;
    for (const auto& member : members_) {
      count += member->counters().data_taken + member->counters().control_taken +
               member->counters().replayed + member->counters().repeated;
    }
    return count;
  }

 private:
  std::unique_ptr<Process> make_process(std::uint16_t rank) const {
    return std::make_unique<Process>(rank, first_number_);
  }

  void transmit(std::vector<Datagram>& recorded) {
    std::array<std::uint8_t, SPILLWAY_MAX_PACKET> room;
    for (const auto& member : members_) {
      Route route;
      while (const std::size_t size = member->port.poll_datagram(now_, room, route)) {
        recorded.push_back({route.peer, Bytes(room.begin(), room.begin() + size)});
        in_flight_.emplace(now_ + kDelay, recorded.back());
      }
    }
  }

  bool step(base::Instant end) {
    base::Instant next = in_flight_.empty() ? kNever : in_flight_.begin()->first;
    for (const auto& member : members_) {
      next = std::min(next, member->port.endpoint().next_timeout());
    }
    if (next > end) {
      return false;
    }
    now_ = std::max(now_, next);
    while (!in_flight_.empty() && in_flight_.begin()->first <= now_) {
      const Datagram datagram = std::move(in_flight_.begin()->second);
      in_flight_.erase(in_flight_.begin());
      members_[datagram.to]->port.on_datagram(datagram.bytes, /*marked=*/false, now_);
    }
    for (const auto& member : members_) {
      member->port.endpoint().on_timeout(now_);
    }
    take_events();
    return true;
  }

  void take_events() {
    Event event;
    for (const auto& member : members_) {
      while (member->port.endpoint().poll_event(event)) {
        const auto* received = std::get_if<ReceiveReport>(&event);
        const auto* sent = std::get_if<SendReport>(&event);
        ASSERT_TRUE(received != nullptr || sent != nullptr);
        member->received += received != nullptr && received->whole == kPackets ? 1 : 0;
        member->sent += sent != nullptr && sent->outcome == Outcome::kEverything ? 1 : 0;
      }
    }
  }

  std::uint64_t first_number_;
  std::array<std::unique_ptr<Process>, kRanks> members_;
  base::Instant now_{base::milliseconds(1)};
  std::multimap<base::Instant, Datagram> in_flight_;
  std::uint8_t contents_ = 0;  // byte that planes of this epoch consist of
};

TEST(Epochs, FollowEachOtherWithOtherPeersOnTheSamePorts) {
  Cluster cluster;
  cluster.begin_epoch(1);
  cluster.start_ring(5);
  cluster.run();
  cluster.expect_ring_arrived(1);
  const std::unique_ptr<Process> gone = cluster.replace(2);
  cluster.begin_epoch(2);
  cluster.start_ring(5);  // the same names mean other messages
  cluster.run();
  EXPECT_EQ(cluster[0].received, 2U);
  EXPECT_EQ(cluster[1].received, 2U);
  EXPECT_EQ(cluster[2].received, 1U);
  for (std::uint16_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(cluster[rank].sink.wrong, 0U);
    EXPECT_EQ(cluster[rank].sent, cluster[rank].received);
  }
  EXPECT_EQ(cluster.other_epoch(), 0U);
  EXPECT_EQ(cluster.refused_by_check(), 0U);
}

TEST(Epochs, LatePacketsOfTheOneBeforeAreCountedAndChangeNothing) {
  Cluster cluster;
  cluster.begin_epoch(1);
  cluster.start_ring(5);
  const std::vector<Datagram> late = cluster.intercept();
  ASSERT_GT(late.size(), kPackets);
  const std::unique_ptr<Process> gone = cluster.replace(2);
  cluster.begin_epoch(2);
  cluster.start_ring(5);
  cluster.deliver(late);
  EXPECT_EQ(cluster.other_epoch(), late.size());
  EXPECT_EQ(cluster.taken(), 0U);
  cluster.run();
  cluster.expect_ring_arrived(1);
}

TEST(Epochs, RecordingsOfTheOneBeforeAreRefused) {
  Cluster cluster;
  cluster.begin_epoch(1);
  cluster.start_ring(5);
  const std::vector<Datagram> recorded = cluster.run();
  cluster.begin_epoch(2);
  cluster.start_ring(5);
  const std::uint64_t taken = cluster.taken();
  cluster.deliver(recorded);
  EXPECT_EQ(cluster.other_epoch(), recorded.size());
  EXPECT_EQ(cluster.taken(), taken);
  cluster.run();
  cluster.expect_ring_arrived(2);
  cluster.deliver(recorded);
  cluster.expect_ring_arrived(2);
}

// Only 16 bits of an epoch travel, but its keys are made of all.
TEST(Epochs, ThatAreAlikeInTheirLowBitsHaveOtherKeys) {
  Cluster cluster;
  cluster.begin_epoch(1);
  cluster.start_ring(5);
  const std::vector<Datagram> recorded = cluster.run();
  cluster.begin_epoch(1 + kEpochTurn);
  cluster.start_ring(5);
  const std::uint64_t taken = cluster.taken();
  cluster.deliver(recorded);
  EXPECT_EQ(cluster.other_epoch(), 0U);
  EXPECT_EQ(cluster.refused_by_check(), recorded.size());
  EXPECT_EQ(cluster.taken(), taken);
  cluster.run();
  cluster.expect_ring_arrived(2);
}

TEST(Epochs, CountOnBeyondTheirLowBits) {
  Cluster cluster(/*first_number=*/(std::uint64_t{1} << 32) - 5);
  std::vector<Datagram> before;
  std::size_t messages = 0;
  for (std::uint64_t number = kEpochTurn - 2; number <= kEpochTurn + 1; ++number) {
    cluster.begin_epoch(number);
    cluster.start_ring(5);
    const std::uint64_t foreign = cluster.other_epoch();
    cluster.deliver(before);
    EXPECT_EQ(cluster.other_epoch() - foreign, before.size());
    before = cluster.run();
    cluster.expect_ring_arrived(++messages);
  }
  EXPECT_EQ(cluster.refused_by_check(), 0U);
}

TEST(Epochs, EndWhatWasUnderWayWithoutAWord) {
  Cluster cluster;
  cluster.begin_epoch(1);
  auto source = std::make_unique<EpochPlanes>();
  EXPECT_TRUE(cluster[0]
                  .port.endpoint()
                  .send({.id = {.operation = 9, .source = 0},
                         .to = 1,
                         .packets = kPackets,
                         .packet_bytes = kPacketBytes,
                         .loss = {},
                         .source = source.get()},
                        base::Instant(base::milliseconds(1)))
                  .ok());
  cluster.intercept();
  cluster.begin_epoch(2);
  source.reset();  // nobody asks it any more
  EXPECT_TRUE(cluster.run().empty());
  cluster.start_ring(1);
  cluster.run();
  cluster.expect_ring_arrived(1);
  EXPECT_EQ(cluster[0].sent, 1U);
}

// Point-to-point messages are numbered by direction. For a rank that only ever sends, answers are
// rebuilt by what it has sent, not by what it has received, which is nothing.
TEST(CounterEdges, AnswersAreAboutTheNumbersOfTheirOwnDirection) {
  constexpr std::uint64_t kMany = std::uint64_t{3} << 32;
  Cluster cluster;
  cluster.begin_epoch(1);
  for (std::uint64_t operation = kMany - 2; operation < kMany + 2; ++operation) {
    cluster[1].port.endpoint().retire_before(0, operation);
    cluster.start_message(
        {.operation = operation, .source = 0, .phase = wire::Phase::kPointToPoint}, 1);
    cluster.run();
  }
  EXPECT_EQ(cluster[1].received, 4U);
  EXPECT_EQ(cluster[0].sent, 4U);
}

}  // namespace
}  // namespace spillway::transport
