// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/rendezvous.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <numeric>

#include "base/random.h"
#include "base/version.h"
#include "runtime/rendezvous/guest.h"
#include "runtime/rendezvous/socket.h"

namespace spillway::runtime {
namespace {

using Gathered = base::Result<std::vector<Blob>>;

constexpr base::Duration kLong = base::seconds(30);
constexpr base::Duration kShort = base::milliseconds(400);

Blob blob_of(std::uint32_t rank) {
  return Blob(rank * 37 % 500 + 1, static_cast<std::uint8_t>(rank));
}

std::vector<Blob> all_blobs(std::uint32_t world) {
  std::vector<Blob> blobs;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    blobs.push_back(blob_of(rank));
  }
  return blobs;
}

UniqueId new_id(const char* address = "127.0.0.1:0") {
  return create_unique_id(net::SocketAddress::parse(address).value()).value();
}

std::future<Gathered> join(const UniqueId& id, std::uint32_t rank, std::uint32_t world,
                           base::Duration patience = kLong) {
  return std::async(std::launch::async, [=] {
    return exchange(id, {rank, world}, blob_of(rank), patience);
  });
}

// A point of this machine that nobody else has.
RendezvousPoint local_point() {
  const Nonce nonce = random_nonce().value();
  return {.places = {}, .local_name = "spillway-test-" + to_hex(nonce), .nonce = nonce};
}

Launch launch_of(const RendezvousPoint& where, std::uint16_t rank, std::uint16_t world) {
  Launch launch;
  launch.rank = rank;
  launch.world = world;
  launch.where = where;
  return launch;
}

std::future<Gathered> join(const Launch& launch, base::Duration patience = kLong) {
  return std::async(std::launch::async,
                    [=] { return exchange(launch, blob_of(launch.rank), patience); });
}

void expect_all(std::future<Gathered> outcome, std::uint32_t world) {
  const Gathered gathered = outcome.get();
  ASSERT_TRUE(gathered.ok()) << gathered.status().message();
  EXPECT_EQ(*gathered, all_blobs(world));
}

void expect_error(std::future<Gathered> outcome, const std::string& words) {
  const Gathered gathered = outcome.get();
  ASSERT_FALSE(gathered.ok());
  EXPECT_NE(gathered.status().message().find(words), std::string::npos)
      << gathered.status().message();
}

std::vector<std::uint32_t> shuffled_ranks(std::uint32_t world, std::uint64_t seed) {
  std::vector<std::uint32_t> ranks(world);
  std::iota(ranks.begin(), ranks.end(), 0);
  base::RandomSequence random(seed);
  for (std::size_t i = ranks.size(); i > 1; --i) {
    std::swap(ranks[i - 1], ranks[random.next_below(i)]);
  }
  return ranks;
}

// A client of our own making at an id's address.
class RawClient {
 public:
  explicit RawClient(const UniqueId& id) {
    const RendezvousPoint point = point_of(parse_unique_id(id).value());
    stream_ = connect_to(doors_of(point).value().front(), kLong).value();
  }

  void send(const Blob& bytes) {
    std::size_t sent = 0;
    ASSERT_EQ(send_some(stream_, bytes, sent), StreamState::kOpen);
    ASSERT_EQ(sent, bytes.size());
  }
  // Everything, until the other side has closed.
  std::string read_to_end() {
    Blob bytes;
    while (wait_for(stream_, POLLIN, kLong) && receive_some(stream_, bytes) == StreamState::kOpen) {
    }
    return {bytes.begin(), bytes.end()};
  }
  Frame read_frame() {
    FrameReader reader(most_answer_bytes(4));
    while (wait_for(stream_, POLLIN, kLong)) {
      Blob bytes;
      const StreamState state = receive_some(stream_, bytes);
      reader.append(bytes);
      auto frame = reader.next();
      if (!frame.ok() || frame->has_value() || state == StreamState::kClosed) {
        return frame.value().value();
      }
    }
    return {};
  }

 private:
  net::UniqueFd stream_;
};

Hello hello_for(const UniqueId& id, std::uint32_t rank, std::uint32_t world) {
  return {.nonce = parse_unique_id(id).value().nonce,
          .instance = 4711,
          .world = world,
          .rank = rank,
          .patience = kLong,
          .left = kLong,
          .version = base::kVersion,
          .blob = blob_of(rank)};
}

// In one process the first to join is the host: waits until there is one.
void wait_for_host(const UniqueId& id) {
  RawClient anyone(id);
  anyone.send(Blob(1, 0));
  EXPECT_NE(anyone.read_to_end(), "");
}

TEST(Rendezvous, SixteenRanksInAnyOrderHearOfEachOther) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const UniqueId id = new_id();
    std::vector<std::future<Gathered>> outcomes;
    for (const std::uint32_t rank : shuffled_ranks(16, seed)) {
      outcomes.push_back(join(id, rank, 16));
    }
    for (std::future<Gathered>& outcome : outcomes) {
      expect_all(std::move(outcome), 16);
    }
  }
}

TEST(Rendezvous, WorksOverIpv6) {
  const auto id = create_unique_id(net::SocketAddress::parse("[::1]:0").value());
  if (!id.ok()) {
    GTEST_SKIP() << id.status().message();
  }
  std::future<Gathered> first = join(*id, 1, 2);
  expect_all(join(*id, 0, 2), 2);
  expect_all(std::move(first), 2);
}

TEST(Rendezvous, FullBlobsOfManyRanksFit) {
  const RendezvousPoint point = local_point();
  constexpr std::uint16_t kWorld = 48;
  const Blob full(kMaxBlobBytes, 7);
  std::vector<std::future<Gathered>> outcomes;
  for (std::uint16_t rank = 0; rank < kWorld; ++rank) {
    outcomes.push_back(std::async(
        std::launch::async, [=] { return exchange(launch_of(point, rank, kWorld), full, kLong); }));
  }
  for (std::future<Gathered>& outcome : outcomes) {
    EXPECT_EQ(outcome.get().value(), std::vector<Blob>(kWorld, full));
  }
}

TEST(Rendezvous, TheHostMayComeLast) {
  const RendezvousPoint point = local_point();
  std::future<Gathered> one = join(launch_of(point, 1, 3));
  std::future<Gathered> two = join(launch_of(point, 2, 3));
  // Long enough for both to have knocked in vain.
  EXPECT_EQ(one.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  expect_all(join(launch_of(point, 0, 3)), 3);
  expect_all(std::move(one), 3);
  expect_all(std::move(two), 3);
}

TEST(Rendezvous, TheHostTakesTheNextPortWhereTheFirstIsTaken) {
  const UniqueId taken = new_id();
  const UniqueId free = new_id();
  const RendezvousPoint first = point_of(parse_unique_id(taken).value());
  RendezvousPoint point = point_of(parse_unique_id(free).value());
  discard_unique_id(free);
  point.places.insert(point.places.begin(), first.places.front());
  std::future<Gathered> host = join(launch_of(point, 0, 2));
  // The stranger at the first port answers like a web server would.
  std::future<Gathered> guest = join(launch_of(point, 1, 2));
  const net::UniqueFd listener = take_listener(parse_unique_id(taken).value());
  ASSERT_TRUE(wait_for(listener, POLLIN, kLong));
  const net::UniqueFd stranger = accept_from(listener);
  const std::string page = "HTTP/1.0 400 Bad Request\r\n\r\n";
  std::size_t sent = 0;
  EXPECT_EQ(send_some(stranger, Blob(page.begin(), page.end()), sent), StreamState::kOpen);
  expect_all(std::move(host), 2);
  expect_all(std::move(guest), 2);
}

TEST(Rendezvous, EveryoneHearsWhoDidNotCome) {
  const UniqueId id = new_id();
  const std::string where = parse_unique_id(id).value().address.to_string();
  const std::string words =
      fmt::format("ranks 1 and 3 of 5 did not come to {} within 400 ms", where);
  std::future<Gathered> host = join(id, 0, 5, kShort);
  std::future<Gathered> two = join(id, 2, 5, kLong);
  std::future<Gathered> four = join(id, 4, 5, kLong);
  expect_error(std::move(host), words);
  expect_error(std::move(two), words);
  expect_error(std::move(four), words);
}

TEST(Rendezvous, AGuestsImpatienceEndsItForAll) {
  const UniqueId id = new_id();
  std::future<Gathered> host = join(id, 0, 3, kLong);
  expect_error(join(id, 1, 3, kShort), "rank 2 of 3 did not come to");
  expect_error(std::move(host), "rank 2 of 3 did not come to");
}

TEST(Rendezvous, AGuestSaysThatTheHostDidNotCome) {
  expect_error(join(launch_of(local_point(), 1, 2), kShort), "rank 1 of 2 did not meet rank 0 at");
}

TEST(Rendezvous, StrangersDoNotDisturb) {
  const UniqueId id = new_id();
  const RawClient silent(id);
  RawClient scanner(id);
  const std::string request = "GET / HTTP/1.0\r\n\r\n";
  scanner.send(Blob(request.begin(), request.end()));
  {
    RawClient gone(id);
    gone.send(Blob(5, 0));
  }
  std::future<Gathered> host = join(id, 0, 2);
  EXPECT_NE(scanner.read_to_end().find("these bytes are no rendezvous of Spillway"),
            std::string::npos);
  expect_all(join(id, 1, 2), 2);
  expect_all(std::move(host), 2);
}

TEST(Rendezvous, ARankOfAnotherJobIsToldSoAndKeepsTrying) {
  const UniqueId id = new_id();
  UniqueIdContent content = parse_unique_id(id).value();
  content.nonce = {1, 2, 3};
  std::future<Gathered> host = join(id, 0, 2);
  expect_error(join(encode_unique_id(content), 1, 2, kShort), "another job meets here");
  expect_all(join(id, 1, 2), 2);
  expect_all(std::move(host), 2);
}

TEST(Rendezvous, AnotherWorldOrVersionOrASecondOfARankIsRefused) {
  const UniqueId id = new_id();
  std::future<Gathered> host = join(id, 0, 3);
  wait_for_host(id);
  expect_error(join(id, 1, 4), "was told of 4 ranks");
  expect_error(join(id, 0, 3), "rank 0 is here already");
  RawClient old(id);
  Hello hello = hello_for(id, 1, 3);
  hello.version = "0.0.1";
  old.send(encode(hello));
  EXPECT_NE(old.read_to_end().find("install the same version everywhere"), std::string::npos);
  std::future<Gathered> one = join(id, 1, 3);
  expect_all(join(id, 2, 3), 3);
  expect_all(std::move(one), 3);
  expect_all(std::move(host), 3);
}

TEST(Rendezvous, ARankThatDiedIsReplacedAndOneThatComesAgainIsKnown) {
  const UniqueId id = new_id();
  std::future<Gathered> host = join(id, 0, 3);
  {
    RawClient dead(id);
    dead.send(encode(hello_for(id, 1, 3)));
    EXPECT_EQ(dead.read_frame().type, FrameType::kWelcome);
  }
  RawClient first(id);
  first.send(encode(hello_for(id, 2, 3)));
  EXPECT_EQ(first.read_frame().type, FrameType::kWelcome);
  RawClient second(id);
  second.send(encode(hello_for(id, 2, 3)));
  EXPECT_EQ(second.read_frame().type, FrameType::kWelcome);
  EXPECT_EQ(first.read_to_end(), "");
  expect_all(join(id, 1, 3), 3);
  EXPECT_EQ(second.read_frame().type, FrameType::kGather);
  expect_all(std::move(host), 3);
}

TEST(Rendezvous, WrongCallsAreErrors) {
  const UniqueId id = new_id();
  EXPECT_FALSE(exchange(id, {2, 2}, {}, kShort).ok());
  EXPECT_FALSE(exchange(id, {0, 0}, {}, kShort).ok());
  EXPECT_FALSE(exchange(id, {0, kMaxRanks + 1}, {}, kShort).ok());
  EXPECT_FALSE(exchange(id, {0, 2}, Blob(kMaxBlobBytes + 1), kShort).ok());
  EXPECT_FALSE(exchange(UniqueId{}, {0, 2}, {}, kShort).ok());
  discard_unique_id(id);
}

TEST(Rendezvous, AloneThereIsNothingToWaitFor) {
  EXPECT_EQ(exchange(Launch{}, {5}, kShort).value(), std::vector<Blob>{{5}});
  EXPECT_EQ(exchange(new_id(), {0, 1}, {5}, kShort).value(), std::vector<Blob>{{5}});
}

TEST(Rendezvous, RankZeroSaysWhenItsPlaceIsTakenOrElsewhere) {
  const UniqueId id = new_id();
  expect_error(join(launch_of(point_of(parse_unique_id(id).value()), 0, 2)), "another process");
  discard_unique_id(id);
  RendezvousPoint elsewhere;
  elsewhere.places = {{"192.0.2.77", 29517}};
  expect_error(join(launch_of(elsewhere, 0, 2)), "no address of this host");
}

}  // namespace
}  // namespace spillway::runtime
