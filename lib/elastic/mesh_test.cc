// SPDX-License-Identifier: Apache-2.0
#include "elastic/mesh.h"

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "harness/slowdown.h"

namespace spillway::runtime {
namespace {

using membership::MemberId;

// A process of a job, all of whose processes take turns on one thread.
class MeshProcess : private MeshListener {
 public:
  explicit MeshProcess(const MemberKey& key, Standing standing = Standing::kMember) {
    mesh_ = Mesh::open({.job = {7},
                        .credential = Credential::of_id({7}).value(),
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
  void on_speech(MemberId /*from*/, base::ByteView /*speech*/) override {}
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
    stays.mesh().introduce(dies.mesh().own());
    dies.mesh().introduce(stays.mesh().own());
    ASSERT_TRUE(turn_until({&stays, &dies},
                           [&] { return !stays.connected.empty() && !dies.connected.empty(); }));
    EXPECT_EQ(stays.connected, std::vector{key.id()});
  }
  ASSERT_TRUE(turn_until({&stays}, [&] { return !stays.lost.empty(); }));
  EXPECT_EQ(stays.lost, std::vector{key.id()});

  MeshProcess returns(key, Standing::kNewcomer);
  returns.mesh().dial_anybody(stays.mesh().own().address);
  ASSERT_TRUE(turn_until({&stays, &returns}, [&] { return !returns.refused.empty(); }));
  EXPECT_NE(returns.refused.find("that member was lost"), std::string::npos) << returns.refused;
  EXPECT_EQ(stays.connected.size(), 1U);
  EXPECT_TRUE(returns.connected.empty());
  EXPECT_FALSE(returns.is_welcome);

  // A new process has another key and is let in.
  MeshProcess replaces(MemberKey::draw().value(), Standing::kNewcomer);
  replaces.mesh().dial_anybody(stays.mesh().own().address);
  ASSERT_TRUE(turn_until({&stays, &replaces}, [&] { return replaces.is_welcome; }));
  EXPECT_EQ(stays.connected, (std::vector{key.id(), replaces.id()}));
}

// Once the view has dropped a lost process, its id has no vote: it may come back as a newcomer.
TEST(Mesh, AProcessThatTheViewHasDroppedMayJoinAgain) {
  MeshProcess stays(MemberKey::draw().value());
  const MemberKey key = MemberKey::draw().value();
  {
    MeshProcess dies(key, Standing::kNewcomer);
    dies.mesh().dial_anybody(stays.mesh().own().address);
    ASSERT_TRUE(turn_until({&stays, &dies}, [&] { return dies.is_welcome; }));
    stays.view = {stays.id(), dies.id()};
  }
  ASSERT_TRUE(turn_until({&stays}, [&] { return !stays.lost.empty(); }));
  stays.view = {stays.id()};
  MeshProcess returns(key, Standing::kNewcomer);
  returns.mesh().dial_anybody(stays.mesh().own().address);
  ASSERT_TRUE(turn_until({&stays, &returns}, [&] { return returns.is_welcome; }));
}

TEST(Mesh, ASecondProcessWithALivingMembersKeyIsRefused) {
  MeshProcess stays(MemberKey::draw().value());
  const MemberKey key = MemberKey::draw().value();
  MeshProcess first(key, Standing::kNewcomer);
  first.mesh().dial_anybody(stays.mesh().own().address);
  ASSERT_TRUE(turn_until({&stays, &first}, [&] { return first.is_welcome; }));
  MeshProcess second(key, Standing::kNewcomer);
  second.mesh().dial_anybody(stays.mesh().own().address);
  ASSERT_TRUE(turn_until({&stays, &first, &second}, [&] { return !second.refused.empty(); }));
  EXPECT_NE(second.refused.find("already"), std::string::npos) << second.refused;
  EXPECT_TRUE(stays.lost.empty());
}

}  // namespace
}  // namespace spillway::runtime
