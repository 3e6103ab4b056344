// SPDX-License-Identifier: Apache-2.0
//
// Strangers that act as joiners or as the host of a rendezvous.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <list>
#include <optional>
#include <thread>
#include <vector>

#include "base/version.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/rendezvous_testing.h"
#include "net/stranger_table.h"

namespace spillway::comm {
namespace {

using testing_rendezvous::all_blobs;
using testing_rendezvous::all_say;
using testing_rendezvous::bytes_of;
using testing_rendezvous::expect_all;
using testing_rendezvous::expect_with_some_patience;
using testing_rendezvous::FakeHost;
using testing_rendezvous::Gathered;
using testing_rendezvous::join;
using testing_rendezvous::launch_of;
using testing_rendezvous::local_point;
using testing_rendezvous::long_time;
using testing_rendezvous::new_id;
using testing_rendezvous::RawClient;
using testing_rendezvous::RawEnd;

const std::string kJobSecret = "a secret of twenty-two";

Hello hello_of(std::uint32_t rank, const launch::Nonce& nonce) {
  return {.nonce = nonce,
          .random = {},
          .instance = 666,
          .world = 2,
          .rank = rank,
          .patience = long_time(),
          .left = long_time(),
          .version = base::kVersion,
          .blob = {6, 6, 6}};
}

TEST(RendezvousAttack, WhoDoesNotKnowTheSecretLearnsNothingAndTakesNobodysPlace) {
  const launch::RendezvousPoint point = local_point();
  std::future<Gathered> host = join(launch_of(point, 0, 2), long_time(), kJobSecret);
  RawClient secretless(point);
  secretless.send(encode(Opening{Keying::kNone, {1}}));
  const Frame told = secretless.read_frame();
  EXPECT_EQ(told.type, FrameType::kRefusal);
  EXPECT_NE(text_of(told).find("give SPILLWAY_SECRET_FILE to all"), std::string::npos);
  EXPECT_EQ(secretless.read_to_end(), "");

  RawClient guessing(point);
  guessing.send(encode(Opening{Keying::kSecret, {1}}));
  EXPECT_EQ(guessing.read_frame().type, FrameType::kChallenge);
  guessing.send(encode(Proof{1}));
  guessing.send(encode(hello_of(1, point.nonce)));
  const Frame answer = guessing.read_frame();
  EXPECT_EQ(answer.type, FrameType::kRefusal);
  EXPECT_NE(text_of(answer).find("did not prove"), std::string::npos);
  EXPECT_EQ(guessing.read_to_end(), "");

  RawClient rude(point);
  rude.send(encode(hello_of(1, point.nonce)));
  EXPECT_EQ(rude.read_frame().type, FrameType::kRefusal);

  expect_all(join(launch_of(point, 1, 2), long_time(), kJobSecret), 2);
  const Gathered met = host.get();
  ASSERT_TRUE(met.ok()) << met.status().message();
  EXPECT_EQ(met->blobs, all_blobs(2));
  EXPECT_EQ(met->strangers[StrangerKind::kKeying], 1U);
  EXPECT_EQ(met->strangers[StrangerKind::kUnproven], 1U);
  EXPECT_EQ(met->strangers[StrangerKind::kNoise], 1U);
}

TEST(RendezvousAttack, AProofOfAnEarlierConnectionIsRefused) {
  const launch::RendezvousPoint point = local_point();
  const Credential credential = Credential::of_secret(bytes_of(kJobSecret)).value();
  std::future<Gathered> host = join(launch_of(point, 0, 2), long_time(), kJobSecret);
  // An eavesdropper's recording of a real joiner.
  JoinerHandshake real(credential, {1});
  RawClient first(point);
  first.send(real.opening());
  const Frame proof = real.take(first.read_frame()).value().value();
  RawClient again(point);
  again.send(real.opening());
  again.read_frame();
  again.send(proof);
  EXPECT_EQ(again.read_frame().type, FrameType::kRefusal);
  expect_all(join(launch_of(point, 1, 2), long_time(), kJobSecret), 2);
  EXPECT_EQ(host.get()->strangers[StrangerKind::kUnproven], 1U);
}

TEST(RendezvousAttack, HelloThatWasChangedOnItsWayIsRefused) {
  const launch::RendezvousPoint point = local_point();
  std::future<Gathered> host = join(launch_of(point, 0, 2), long_time(), kJobSecret);
  {
    RawClient client(point);
    const Credential credential = Credential::of_secret(bytes_of(kJobSecret)).value();
    JoinerHandshake real(credential, {1});
    client.send(real.opening());
    client.send(real.take(client.read_frame()).value().value());
    Channel channel = real.channel();
    Blob hello = channel.pack(encode(hello_of(1, point.nonce))).value();
    hello[kFrameHeaderBytes + 70] ^= 1;
    client.send(hello);
    EXPECT_NE(client.read_to_end(), "");
  }
  expect_all(join(launch_of(point, 1, 2), long_time(), kJobSecret), 2);
  EXPECT_EQ(host.get()->strangers[StrangerKind::kUnproven], 1U);
}

TEST(RendezvousAttack, AHostWithoutTheSecretHearsNothingAboutTheJobAndIsNotBelieved) {
  const launch::RendezvousPoint point = local_point();
  const Gather forged{.drawn = {}, .randoms = {{1}, {2}}, .blobs = {{1}, {2}}};
  const std::vector<Frame> lies = {encode(Challenge{Keying::kSecret, {9}, {9}}),
                                   encode(Challenge{Keying::kNone, {9}, {}}),
                                   encode(Refusal{true, "you are not wanted"}),
                                   encode_failure("it is over"), encode(forged).front()};
  std::future<Gathered> joiner = join(launch_of(point, 1, 2), long_time(), kJobSecret);
  {
    FakeHost fake(point);
    for (const Frame& lie : lies) {
      RawEnd end = fake.next_guest();
      const Frame opening = end.read_frame();
      EXPECT_EQ(opening.type, FrameType::kOpening);
      EXPECT_EQ(opening.body.size(), 1 + sizeof(Random));
      end.send(lie);
      EXPECT_EQ(end.read_to_end(), "") << "it says no more";
    }
  }
  // None of these refusals was final.
  expect_all(join(launch_of(point, 0, 2), long_time(), kJobSecret), 2);
  expect_all(std::move(joiner), 2);
}

TEST(RendezvousAttack, AGuestSaysAtLastWhatAnUnprovenHostSaid) {
  expect_with_some_patience([](base::Duration patience) {
    const launch::RendezvousPoint point = local_point();
    FakeHost fake(point);
    std::vector<std::future<Gathered>> joiner;
    joiner.push_back(join(launch_of(point, 1, 2), patience, kJobSecret));
    while (joiner[0].wait_for(std::chrono::milliseconds(0)) != std::future_status::ready) {
      if (std::optional<RawEnd> end = fake.next_guest_within(base::milliseconds(50))) {
        end->try_to_say(encode(Refusal{true, "you are not wanted"}));
        end->read_to_end();
      }
    }
    return all_say(std::move(joiner), "refused this rank: you are not wanted");
  });
}

TEST(RendezvousAttack, AnOldGatherIsNotTakenForThisOne) {
  const launch::RendezvousPoint point = local_point();
  std::future<Gathered> joiner = join(launch_of(point, 1, 2));
  {
    FakeHost fake(point);
    const Gather old{.drawn = {}, .randoms = {{1}, {2}}, .blobs = {{1}, {2}}};
    RawEnd end = fake.next_guest();
    EXPECT_EQ(end.read_frame().type, FrameType::kOpening);
    end.send(encode(Challenge{}));
    EXPECT_EQ(end.read_frame().type, FrameType::kHello);
    end.send(encode_welcome());
    end.send(encode(old).front());
    EXPECT_EQ(end.read_to_end(), "");
  }
  expect_all(join(launch_of(point, 0, 2)), 2);
  expect_all(std::move(joiner), 2);
}

TEST(RendezvousAttack, RanksWithAndWithoutASecretAreToldSo) {
  const std::string advice = "give SPILLWAY_SECRET_FILE to all ranks or to none";
  for (const bool host_has : {true, false}) {
    expect_with_some_patience([&](base::Duration patience) {
      const launch::RendezvousPoint point = local_point();
      std::vector<std::future<Gathered>> outcomes;
      outcomes.push_back(join(launch_of(point, 0, 2), patience * 2, host_has ? kJobSecret : ""));
      outcomes.push_back(join(launch_of(point, 1, 2), patience, host_has ? "" : kJobSecret));
      return all_say(std::move(outcomes), advice);
    });
  }
}

TEST(RendezvousAttack, RanksWithDifferentSecretsDoNotMeet) {
  expect_with_some_patience([](base::Duration patience) {
    const launch::RendezvousPoint point = local_point();
    std::vector<std::future<Gathered>> host;
    host.push_back(join(launch_of(point, 0, 2), patience * 2, kJobSecret));
    std::vector<std::future<Gathered>> joiner;
    joiner.push_back(join(launch_of(point, 1, 2), patience, "another secret, not that"));
    const ::testing::AssertionResult refused =
        all_say(std::move(joiner), "did not prove that it knows the job's secret");
    const ::testing::AssertionResult missed = all_say(std::move(host), "rank 1 of 2 did not come");
    return refused ? missed : refused;
  });
}

// Sets the number of files that this process may open. The host's descriptors and the strangers'
// all belong to it.
class OpenFiles {
 public:
  explicit OpenFiles(std::uint64_t files) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit wanted = before_;
    wanted.rlim_cur = std::min<rlim_t>(before_.rlim_max, files);
    ::setrlimit(RLIMIT_NOFILE, &wanted);
    is_met_ = wanted.rlim_cur == files;
  }
  ~OpenFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  bool is_met() const { return is_met_; }

 private:
  rlimit before_{};
  bool is_met_ = false;
};

// Strangers from one address, for this process's limit of files.
std::size_t most_from_one_address() {
  return net::StrangerTable::most_of(net::StrangerTable::files_of_process(), kStrangerBytes) /
         net::StrangerTable::kSourceShare;
}

// One address holds only its share of the strangers' places, and silent strangers lose theirs to
// ranks.
TEST(RendezvousAttack, AFloodOfSilentStrangersDoesNotKeepRanksOut) {
  constexpr std::size_t kFlood = 600;
  const OpenFiles files(2048);
  if (!files.is_met()) {
    GTEST_SKIP() << "this process may not open enough files";
  }
  const std::size_t most = most_from_one_address();
  ASSERT_EQ(most, 2048 / net::StrangerTable::kDescriptorShare / net::StrangerTable::kSourceShare);
  const UniqueId id = new_id();
  const launch::RendezvousPoint point = point_of(parse_unique_id(id).value());
  std::list<RawClient> flood;
  for (std::size_t i = 0; i < kFlood; ++i) {
    flood.emplace_back(point);
  }
  std::future<Gathered> host = join(id, 0, 3);
  // Waits until the host answers: in one process the first rank to join is the host.
  flood.back().send(Blob(1, 0));
  EXPECT_NE(flood.back().read_to_end(), "");
  const auto held = std::count_if(flood.begin(), flood.end(),
                                  [](const RawClient& each) { return each.is_quiet(); });
  EXPECT_LE(static_cast<std::size_t>(held), most);
  std::future<Gathered> one = join(id, 1, 3);
  for (std::size_t i = 0; i < 50; ++i) {
    flood.emplace_back(point);
  }
  expect_all(join(id, 2, 3), 3);
  expect_all(std::move(one), 3);
  const Gathered met = host.get();
  ASSERT_TRUE(met.ok()) << met.status().message();
  EXPECT_GE(met->strangers[StrangerKind::kSilent], kFlood - most - 1);
}

// Half of the strangers say what a rank would, and all come from the ranks' own address.
TEST(RendezvousAttack, AFloodThatDoesNotEndDoesNotKeepRanksOut) {
  constexpr std::uint32_t kWorld = 8;
  const UniqueId id = new_id();
  const StreamAddress where =
      stream_addresses_of(point_of(parse_unique_id(id).value())).value().front();
  std::atomic<bool> is_over = false;
  const std::future<void> flood = std::async(std::launch::async, [&] {
    std::deque<RawEnd> held;
    for (std::size_t i = 0; !is_over; ++i) {
      base::Result<net::UniqueFd> stranger = connect_to(where, base::milliseconds(100));
      if (!stranger.ok()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      held.emplace_back(std::move(stranger).value());
      if (i % 2 == 0) {
        held.back().try_to_say(encode(Opening{Keying::kId, {1}}));
      }
      if (held.size() > 200) {
        held.pop_front();
      }
    }
  });
  std::vector<std::future<Gathered>> ranks;
  for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
    ranks.push_back(join(id, rank, kWorld));
  }
  for (std::future<Gathered>& rank : ranks) {
    expect_all(std::move(rank), kWorld);
  }
  is_over = true;
  flood.wait();
}

// Ranks that find their address's share taken by other ranks connect again.
TEST(RendezvousAttack, AWorldOfOneAddressThatComesAtOnceGetsIn) {
  constexpr std::uint32_t kWorld = 64;
  const OpenFiles files(512);
  if (!files.is_met()) {
    GTEST_SKIP() << "this process may not open enough files";
  }
  ASSERT_LT(most_from_one_address(), kWorld / 2);
  const UniqueId id = new_id();
  std::vector<std::future<Gathered>> ranks;
  for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
    ranks.push_back(join(id, rank, kWorld));
  }
  for (std::future<Gathered>& rank : ranks) {
    expect_all(std::move(rank), kWorld);
  }
}

TEST(RendezvousAttack, AllRanksHaveOneKeyAndEveryRunAnother) {
  std::vector<wire::RunKey> seen;
  const auto run = [&](const auto& join_rank) {
    std::vector<std::future<Gathered>> outcomes;
    for (std::uint16_t rank = 0; rank < 3; ++rank) {
      outcomes.push_back(join_rank(rank));
    }
    const wire::RunKey key = outcomes[0].get().value().key;
    EXPECT_EQ(outcomes[1].get().value().key, key);
    EXPECT_EQ(outcomes[2].get().value().key, key);
    EXPECT_NE(key, wire::RunKey());
    for (const wire::RunKey& other : seen) {
      EXPECT_NE(key, other);
    }
    seen.push_back(key);
  };
  for (int i = 0; i < 2; ++i) {
    for (const std::string& secret : {std::string(), kJobSecret}) {
      const launch::RendezvousPoint point = local_point();
      run([&](std::uint16_t rank) { return join(launch_of(point, rank, 3), long_time(), secret); });
      const UniqueId id = new_id();
      run([&](std::uint16_t rank) { return join(id, rank, 3, long_time(), secret); });
    }
  }
}

}  // namespace
}  // namespace spillway::comm
