// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "elastic/mesh.h"
#include "elastic/mesh_message.h"
#include "harness/slowdown.h"

namespace spillway::elastic {

namespace {

using membership::MemberId;

// A process of a job, all of whose processes take turns on one thread.
class MeshProcess : private MeshListener {
 public:
  explicit MeshProcess(const MemberKey& key, Standing standing = Standing::kMember) {
    mesh_ = Mesh::open({.job = {7},
                        .credential = comm::Credential::of_id({7}).value(),
                        .standing = standing,
                        .listen = net::SocketAddress::parse("127.0.0.1:0").value(),
                        .key = key,
                        .name = "host:1"},
                       *this)
                .value();
  }

  Mesh& mesh() { return *mesh_; }
  MemberId id() const { return mesh_->own().id; }
  void turn() { mesh_->turn(base::MonotonicClock().now() + base::milliseconds(1), -1); }

  std::set<MemberId> view;
  std::vector<MemberId> connected;
  std::vector<MemberId> lost;
  bool is_welcome = false;
  std::string refused;

 private:
  void on_connected(const MemberCard& member) override { connected.push_back(member.id); }
  void on_lost(MemberId member) override { lost.push_back(member); }
  void on_member_message(MemberId /*from*/, base::ByteView /*message*/) override {}
  void on_welcome(const MemberWelcome& /*welcome*/) override { is_welcome = true; }
  void on_refused(const std::string& why) override { refused = why; }
  bool is_member(MemberId member) const override { return view.contains(member); }
  wire::RunKey key() const override { return {}; }
  void on_question(std::uint64_t /*asker*/, const std::string& /*question*/) override {}

  std::unique_ptr<Mesh> mesh_;
};

bool turn_until(std::initializer_list<MeshProcess*> processes,
                const std::function<bool()>& condition) {
  harness::Limit limit;
  while (!condition()) {
    if (limit.is_over()) {
      return false;
    }
    for (MeshProcess* process : processes) {
      process->turn();
    }
  }
  return true;
}

TEST(Mesh, AMemberWhoseStreamEndedIsRefusedWhileTheViewHasIt) {
  MeshProcess stays(MemberKey::draw().value());
  const MemberKey key = MemberKey::draw().value();
  {
    MeshProcess dies(key);
    stays.view = dies.view = {stays.id(), dies.id()};
    stays.mesh().add_member(dies.mesh().own());
    dies.mesh().add_member(stays.mesh().own());
    ASSERT_TRUE(turn_until({&stays, &dies},
                           [&] { return !stays.connected.empty() && !dies.connected.empty(); }));
    EXPECT_EQ(stays.connected, std::vector{key.id()});
  }
  ASSERT_TRUE(turn_until({&stays}, [&] { return !stays.lost.empty(); }));
  EXPECT_EQ(stays.lost, std::vector{key.id()});

  MeshProcess returns(key, Standing::kNewcomer);
  returns.mesh().dial_any_member(stays.mesh().own().address);
  ASSERT_TRUE(turn_until({&stays, &returns}, [&] { return !returns.refused.empty(); }));
  EXPECT_NE(returns.refused.find("that member was lost"), std::string::npos) << returns.refused;
  EXPECT_EQ(stays.connected.size(), 1U);
  EXPECT_TRUE(returns.connected.empty());
  EXPECT_FALSE(returns.is_welcome);

  // A new process has another key and is let in.
  MeshProcess replaces(MemberKey::draw().value(), Standing::kNewcomer);
  replaces.mesh().dial_any_member(stays.mesh().own().address);
  ASSERT_TRUE(turn_until({&stays, &replaces}, [&] { return replaces.is_welcome; }));
  EXPECT_EQ(stays.connected, (std::vector{key.id(), replaces.id()}));
}

// Once the view has dropped a lost process, its id has no vote: it may come back as a newcomer.
TEST(Mesh, AProcessThatTheViewHasDroppedMayJoinAgain) {
  MeshProcess stays(MemberKey::draw().value());
  const MemberKey key = MemberKey::draw().value();
  {
    MeshProcess dies(key, Standing::kNewcomer);
    dies.mesh().dial_any_member(stays.mesh().own().address);
    ASSERT_TRUE(turn_until({&stays, &dies}, [&] { return dies.is_welcome; }));
    stays.view = {stays.id(), dies.id()};
  }
  ASSERT_TRUE(turn_until({&stays}, [&] { return !stays.lost.empty(); }));
  stays.view = {stays.id()};
  MeshProcess returns(key, Standing::kNewcomer);
  returns.mesh().dial_any_member(stays.mesh().own().address);
  ASSERT_TRUE(turn_until({&stays, &returns}, [&] { return returns.is_welcome; }));
}

TEST(Mesh, ASecondProcessWithALivingMembersKeyIsRefused) {
  MeshProcess stays(MemberKey::draw().value());
  const MemberKey key = MemberKey::draw().value();
  MeshProcess first(key, Standing::kNewcomer);
  first.mesh().dial_any_member(stays.mesh().own().address);
  ASSERT_TRUE(turn_until({&stays, &first}, [&] { return first.is_welcome; }));
  MeshProcess second(key, Standing::kNewcomer);
  second.mesh().dial_any_member(stays.mesh().own().address);
  ASSERT_TRUE(turn_until({&stays, &first, &second}, [&] { return !second.refused.empty(); }));
  EXPECT_NE(second.refused.find("already"), std::string::npos) << second.refused;
  EXPECT_TRUE(stays.lost.empty());
}

// ------------------------------------------------------------------ keys of members

const comm::Credential& shared_credential() {
  static const comm::Credential credential = comm::Credential::of_id({7}).value();
  return credential;
}

constexpr std::array<std::uint8_t, 3> kDiallersHello = {1, 2, 3};
constexpr std::array<std::uint8_t, 3> kDialledHello = {4, 5, 6};

// The stream on which both sides have these randoms.
MemberStream stream_to(const MemberKey& peer, bool is_dialler, std::uint8_t randoms = 1) {
  const comm::Random dialler = {randoms, 1};
  const comm::Random dialled = {randoms, 2};
  return {.credential = shared_credential(),
          .peer = peer.public_key(),
          .is_dialler = is_dialler,
          .own = is_dialler ? dialler : dialled,
          .peers = is_dialler ? dialled : dialler,
          .own_hello = is_dialler ? kDiallersHello : kDialledHello,
          .peers_hello = is_dialler ? kDialledHello : kDiallersHello};
}

// True if a frame of `from` opens at `to`.
bool opens(comm::Channel from, comm::Channel to) {
  const comm::Frame frame{comm::FrameType::kMemberMessage, {1, 2, 3}};
  comm::FrameReader reader(comm::kMaxAnswerBytes);
  reader.append(from.pack(frame).value());
  const base::Result<comm::Frame> opened = to.unpack(reader.next().value().value());
  return opened.ok() && opened->body == frame.body;
}

TEST(MemberKey, TwoMembersDeriveTheSameKeysForBothDirections) {
  const MemberKey one = MemberKey::draw().value();
  const MemberKey other = MemberKey::draw().value();
  const comm::Channel dialler = channel_between(one, stream_to(other, true)).value();
  const comm::Channel dialled = channel_between(other, stream_to(one, false)).value();
  EXPECT_TRUE(opens(dialler, dialled));
  EXPECT_TRUE(opens(dialled, dialler));
  EXPECT_FALSE(opens(dialler, dialler)) << "a frame can be reflected to its sender";
}

TEST(MemberKey, OnlyThePairDerivesTheKeysOfItsStream) {
  const MemberKey one = MemberKey::draw().value();
  const MemberKey other = MemberKey::draw().value();
  const MemberKey third = MemberKey::draw().value();
  const comm::Channel dialled = channel_between(other, stream_to(one, false)).value();
  EXPECT_FALSE(opens(channel_between(third, stream_to(other, true)).value(), dialled));
  EXPECT_FALSE(opens(channel_between(one, stream_to(third, true)).value(), dialled));
  EXPECT_FALSE(opens(channel_between(one, stream_to(other, true, 2)).value(), dialled))
      << "a proof of one stream counts on another";
  MemberStream elsewhere = stream_to(other, true);
  const comm::Credential credential = comm::Credential::of_id({8}).value();
  EXPECT_FALSE(opens(channel_between(one, {.credential = credential,
                                           .peer = elsewhere.peer,
                                           .is_dialler = true,
                                           .own = elsewhere.own,
                                           .peers = elsewhere.peers,
                                           .own_hello = elsewhere.own_hello,
                                           .peers_hello = elsewhere.peers_hello})
                         .value(),
                     dialled));
}

// Somebody on the path with the job's ticket can rewrite hellos, which say addresses and names.
TEST(MemberKey, AHelloThatWasChangedOnItsWayIsRefused) {
  const MemberKey one = MemberKey::draw().value();
  const MemberKey other = MemberKey::draw().value();
  const comm::Channel dialler = channel_between(one, stream_to(other, true)).value();
  const std::array<std::uint8_t, 3> changed = {1, 2, 2};
  const std::array<std::uint8_t, 6> joined = {1, 2, 3, 4, 5, 6};
  const auto expect_refused = [&](base::ByteView own_hello, base::ByteView peers_hello) {
    MemberStream stream = stream_to(one, false);
    stream.own_hello = own_hello;
    stream.peers_hello = peers_hello;
    const comm::Channel dialled = channel_between(other, stream).value();
    EXPECT_FALSE(opens(dialler, dialled));
    EXPECT_FALSE(opens(dialled, dialler));
  };
  expect_refused(kDialledHello, changed);
  expect_refused(changed, kDiallersHello);
  expect_refused(kDiallersHello, kDialledHello);
  expect_refused({}, joined);
}

TEST(MemberKey, AnIdBelongsToItsKey) {
  const MemberKey one = MemberKey::draw().value();
  const MemberKey other = MemberKey::draw().value();
  EXPECT_EQ(id_of(one.public_key()).value(), one.id());
  EXPECT_NE(one.id(), 0U);
  EXPECT_NE(one.id(), other.id());
  EXPECT_NE(one.public_key(), other.public_key());
}

// With such a key everybody would know the shared secret.
TEST(MemberKey, APublicKeyOfSmallOrderIsRefused) {
  const MemberKey own = MemberKey::draw().value();
  for (const std::uint8_t first : {0, 1}) {
    MemberStream stream = stream_to(own, true);
    stream.peer = {first};
    EXPECT_FALSE(channel_between(own, stream).ok());
  }
}

}  // namespace

}  // namespace spillway::elastic
