// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "base/version.h"
#include "comm/rendezvous/register.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/rendezvous_testing.h"

namespace spillway::comm {

namespace {

using testing_rendezvous::all_blobs;
using testing_rendezvous::all_say;
using testing_rendezvous::blob_of;
using testing_rendezvous::expect_all;
using testing_rendezvous::expect_error;
using testing_rendezvous::expect_with_some_patience;
using testing_rendezvous::FakeHost;
using testing_rendezvous::Gathered;
using testing_rendezvous::join;
using testing_rendezvous::kShort;
using testing_rendezvous::launch_of;
using testing_rendezvous::local_point;
using testing_rendezvous::long_time;
using testing_rendezvous::new_id;
using testing_rendezvous::RawClient;
using testing_rendezvous::RawEnd;

std::vector<std::uint32_t> shuffled_ranks(std::uint32_t world, std::uint64_t seed) {
  std::vector<std::uint32_t> ranks(world);
  std::iota(ranks.begin(), ranks.end(), 0);
  base::RandomSequence random(seed);
  for (std::size_t i = ranks.size(); i > 1; --i) {
    std::swap(ranks[i - 1], ranks[random.next_below(i)]);
  }
  return ranks;
}

RawClient client_at(const UniqueId& id) {
  return RawClient(point_of(parse_unique_id(id).value()));
}

// A client that has proved that it knows the id.
RawClient guest_at(const UniqueId& id) {
  RawClient client = client_at(id);
  client.shake_hands(Credential::of_id(parse_unique_id(id).value().nonce).value());
  return client;
}

Hello hello_for(const UniqueId& id, std::uint32_t rank, std::uint32_t world) {
  return {.nonce = parse_unique_id(id).value().nonce,
          .random = {static_cast<std::uint8_t>(rank)},
          .instance = 4711,
          .world = world,
          .rank = rank,
          .patience = long_time(),
          .left = long_time(),
          .version = base::kVersion,
          .blob = blob_of(rank)};
}

// Waits for the host; in one process the first rank to join is the host.
void wait_for_host(const UniqueId& id) {
  RawClient anyone = client_at(id);
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
  const launch::RendezvousPoint point = local_point();
  constexpr std::uint16_t kWorld = 48;
  const Blob full(kMaxBlobBytes, 7);
  std::vector<std::future<Gathered>> outcomes;
  for (std::uint16_t rank = 0; rank < kWorld; ++rank) {
    outcomes.push_back(std::async(std::launch::async, [=] {
      return exchange(launch_of(point, rank, kWorld), {}, full, long_time());
    }));
  }
  for (std::future<Gathered>& outcome : outcomes) {
    EXPECT_EQ(outcome.get().value().blobs, std::vector<Blob>(kWorld, full));
  }
}

TEST(Rendezvous, TheHostMayComeLast) {
  const launch::RendezvousPoint point = local_point();
  std::future<Gathered> one = join(launch_of(point, 1, 3));
  std::future<Gathered> two = join(launch_of(point, 2, 3));
  {
    // Both have connected in vain when it closes.
    FakeHost before(point);
    const RawEnd first = before.next_guest();
    const RawEnd second = before.next_guest();
  }
  expect_all(join(launch_of(point, 0, 3)), 3);
  expect_all(std::move(one), 3);
  expect_all(std::move(two), 3);
}

TEST(Rendezvous, TheHostTakesTheNextPortWhereTheFirstIsTaken) {
  const UniqueId taken = new_id();
  const UniqueId free = new_id();
  const launch::RendezvousPoint first = point_of(parse_unique_id(taken).value());
  launch::RendezvousPoint point = point_of(parse_unique_id(free).value());
  discard_unique_id(free);
  point.places.insert(point.places.begin(), first.places.front());
  std::future<Gathered> host = join(launch_of(point, 0, 2));
  // The stranger at the first port answers like a web server would.
  std::future<Gathered> joiner = join(launch_of(point, 1, 2));
  const net::UniqueFd listener = take_listener(parse_unique_id(taken).value());
  ASSERT_TRUE(wait_for(listener, POLLIN, long_time()));
  const net::UniqueFd stranger = accept_from(listener).socket;
  const std::string page = "HTTP/1.0 400 Bad Request\r\n\r\n";
  std::size_t sent = 0;
  EXPECT_EQ(send_some(stranger, Blob(page.begin(), page.end()), sent), StreamState::kOpen);
  expect_all(std::move(host), 2);
  expect_all(std::move(joiner), 2);
}

TEST(Rendezvous, EveryoneHearsWhoDidNotCome) {
  expect_with_some_patience([](base::Duration patience) {
    const UniqueId id = new_id();
    const std::string words =
        fmt::format("ranks 1 and 3 of 5 did not come to {} within {}",
                    parse_unique_id(id).value().address.to_string(), name_duration(patience));
    std::vector<std::future<Gathered>> outcomes;
    outcomes.push_back(join(id, 0, 5, patience));
    outcomes.push_back(join(id, 2, 5, patience * 4));
    outcomes.push_back(join(id, 4, 5, patience * 4));
    return all_say(std::move(outcomes), words);
  });
}

TEST(Rendezvous, AGuestsImpatienceEndsItForAll) {
  expect_with_some_patience([](base::Duration patience) {
    const UniqueId id = new_id();
    std::vector<std::future<Gathered>> outcomes;
    outcomes.push_back(join(id, 0, 3, patience * 4));
    outcomes.push_back(join(id, 1, 3, patience));
    return all_say(std::move(outcomes), "rank 2 of 3 did not come to");
  });
}

TEST(Rendezvous, AGuestSaysThatTheHostDidNotCome) {
  expect_error(join(launch_of(local_point(), 1, 2), kShort), "rank 1 of 2 did not meet rank 0 at");
}

TEST(Rendezvous, StrangersDoNotDisturb) {
  const UniqueId id = new_id();
  const RawClient silent = client_at(id);
  RawClient scanner = client_at(id);
  const std::string request = "GET / HTTP/1.0\r\n\r\n";
  scanner.send(Blob(request.begin(), request.end()));
  {
    RawClient gone = client_at(id);
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
  expect_with_some_patience([&content](base::Duration patience) {
    std::vector<std::future<Gathered>> outcomes;
    outcomes.push_back(join(encode_unique_id(content), 1, 2, patience));
    return all_say(std::move(outcomes), "another job, or a stranger, is there");
  });
  expect_all(join(id, 1, 2), 2);
  expect_all(std::move(host), 2);
}

TEST(Rendezvous, AnotherWorldOrVersionOrASecondOfARankIsRefused) {
  const UniqueId id = new_id();
  std::future<Gathered> host = join(id, 0, 3);
  wait_for_host(id);
  expect_error(join(id, 1, 4), "was told of 4 ranks");
  expect_error(join(id, 0, 3), "rank 0 is here already");
  RawClient old = guest_at(id);
  Hello hello = hello_for(id, 1, 3);
  hello.version = "0.0.1";
  old.send(encode(hello));
  EXPECT_NE(
      parse_refusal(old.read_frame().body)->reason.find("install the same version everywhere"),
      std::string::npos);
  std::future<Gathered> one = join(id, 1, 3);
  expect_all(join(id, 2, 3), 3);
  expect_all(std::move(one), 3);
  expect_all(std::move(host), 3);
}

TEST(Rendezvous, ARankThatDiedIsReplacedAndOneThatComesAgainIsKnown) {
  const UniqueId id = new_id();
  std::future<Gathered> host = join(id, 0, 3);
  {
    RawClient dead = guest_at(id);
    dead.send(encode(hello_for(id, 1, 3)));
    EXPECT_EQ(dead.read_frame().type, FrameType::kWelcome);
  }
  RawClient first = guest_at(id);
  first.send(encode(hello_for(id, 2, 3)));
  EXPECT_EQ(first.read_frame().type, FrameType::kWelcome);
  RawClient second = guest_at(id);
  second.send(encode(hello_for(id, 2, 3)));
  EXPECT_EQ(second.read_frame().type, FrameType::kWelcome);
  EXPECT_EQ(first.read_to_end(), "");
  expect_all(join(id, 1, 3), 3);
  EXPECT_EQ(second.read_frame().type, FrameType::kGather);
  expect_all(std::move(host), 3);
}

TEST(Rendezvous, WrongCallsAreErrors) {
  const UniqueId id = new_id();
  EXPECT_FALSE(exchange(id, {2, 2}, {}, {}, kShort).ok());
  EXPECT_FALSE(exchange(id, {0, 0}, {}, {}, kShort).ok());
  EXPECT_FALSE(exchange(id, {0, launch::kMaxRanks + 1}, {}, {}, kShort).ok());
  EXPECT_FALSE(exchange(id, {0, 2}, {}, Blob(kMaxBlobBytes + 1), kShort).ok());
  EXPECT_FALSE(exchange(UniqueId{}, {0, 2}, {}, {}, kShort).ok());
  discard_unique_id(id);
}

TEST(Rendezvous, AloneThereIsNothingToWaitFor) {
  const RendezvousResult one = exchange(launch::Launch{}, {}, {5}, kShort).value();
  const RendezvousResult other = exchange(new_id(), {0, 1}, {}, {5}, kShort).value();
  EXPECT_EQ(one.blobs, std::vector<Blob>{{5}});
  EXPECT_EQ(other.blobs, std::vector<Blob>{{5}});
  EXPECT_NE(one.key, other.key);
}

TEST(Rendezvous, RankZeroSaysWhenItsPlaceIsTakenOrElsewhere) {
  const UniqueId id = new_id();
  expect_error(join(launch_of(point_of(parse_unique_id(id).value()), 0, 2)), "another process");
  discard_unique_id(id);
  launch::RendezvousPoint elsewhere;
  elsewhere.places = {{"192.0.2.77", 29517}};
  expect_error(join(launch_of(elsewhere, 0, 2)), "no address of this host");
}

}  // namespace

namespace {

Gather gather_of_two() {
  return {.drawn = {}, .randoms = {{1}, {2}}, .blobs = {{10}, {20}}};
}

wire::RunKey key_of(const Credential& credential, const Gather& gather) {
  return result_of(credential, gather).value().key;
}

TEST(RendezvousOutcome, TheKeyFollowsFromSecretDrawingAndEveryRandom) {
  const Credential none;
  const Credential secret = Credential::of_secret(Blob(16, 1)).value();
  const wire::RunKey key = key_of(secret, gather_of_two());
  EXPECT_EQ(key, key_of(secret, gather_of_two()));
  EXPECT_NE(key, key_of(none, gather_of_two()));
  EXPECT_NE(key, key_of(Credential::of_secret(Blob(16, 2)).value(), gather_of_two()));
  Gather other = gather_of_two();
  other.drawn.bytes[31] = 1;
  EXPECT_NE(key, key_of(secret, other));
  EXPECT_NE(key_of(none, gather_of_two()), key_of(none, other));
  for (const std::size_t rank : {0, 1}) {
    other = gather_of_two();
    other.randoms[rank][31] ^= 1;
    EXPECT_NE(key, key_of(secret, other));
  }
  other = gather_of_two();
  std::swap(other.randoms[0], other.randoms[1]);
  EXPECT_NE(key, key_of(secret, other));
}

TEST(RendezvousOutcome, StrangersAreCountedByWhatTheyWere) {
  StrangerCounts counts;
  EXPECT_EQ(counts.to_string(), "");
  counts[StrangerKind::kUnproven] = 2;
  ++counts[StrangerKind::kSilent];
  counts[StrangerKind::kCrowded] = 3;
  EXPECT_EQ(counts.total(), 6U);
  EXPECT_EQ(counts.to_string(),
            "turned away: 2 did not prove that they belong to this job; 1 did not say in time who "
            "they are; 3 came when all places of their address were taken");
}

}  // namespace

}  // namespace spillway::comm
