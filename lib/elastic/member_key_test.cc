// SPDX-License-Identifier: Apache-2.0
#include "elastic/member_key.h"

#include <gtest/gtest.h>

#include <array>

namespace spillway::runtime {
namespace {

const Credential& shared_credential() {
  static const Credential credential = Credential::of_id({7}).value();
  return credential;
}

constexpr std::array<std::uint8_t, 3> kDiallersHello = {1, 2, 3};
constexpr std::array<std::uint8_t, 3> kDialledHello = {4, 5, 6};

// The stream on which both sides have these randoms.
MemberStream stream_to(const MemberKey& peer, bool is_dialler, std::uint8_t randoms = 1) {
  const Random dialler = {randoms, 1};
  const Random dialled = {randoms, 2};
  return {.credential = shared_credential(),
          .peer = peer.public_key(),
          .is_dialler = is_dialler,
          .own = is_dialler ? dialler : dialled,
          .peers = is_dialler ? dialled : dialler,
          .own_hello = is_dialler ? kDiallersHello : kDialledHello,
          .peers_hello = is_dialler ? kDialledHello : kDiallersHello};
}

// True if a frame of `from` opens at `to`.
bool opens(Channel from, Channel to) {
  const Frame frame{FrameType::kSpeech, {1, 2, 3}};
  FrameReader reader(kMaxAnswerBytes);
  reader.append(from.pack(frame).value());
  const base::Result<Frame> opened = to.unpack(reader.next().value().value());
  return opened.ok() && opened->body == frame.body;
}

TEST(MemberKey, TwoMembersDeriveTheSameKeysForBothDirections) {
  const MemberKey one = MemberKey::draw().value();
  const MemberKey other = MemberKey::draw().value();
  const Channel dialler = channel_between(one, stream_to(other, true)).value();
  const Channel dialled = channel_between(other, stream_to(one, false)).value();
  EXPECT_TRUE(opens(dialler, dialled));
  EXPECT_TRUE(opens(dialled, dialler));
  EXPECT_FALSE(opens(dialler, dialler)) << "a frame can be reflected to its sender";
}

TEST(MemberKey, OnlyThePairDerivesTheKeysOfItsStream) {
  const MemberKey one = MemberKey::draw().value();
  const MemberKey other = MemberKey::draw().value();
  const MemberKey third = MemberKey::draw().value();
  const Channel dialled = channel_between(other, stream_to(one, false)).value();
  EXPECT_FALSE(opens(channel_between(third, stream_to(other, true)).value(), dialled));
  EXPECT_FALSE(opens(channel_between(one, stream_to(third, true)).value(), dialled));
  EXPECT_FALSE(opens(channel_between(one, stream_to(other, true, 2)).value(), dialled))
      << "a proof of one stream counts on another";
  MemberStream elsewhere = stream_to(other, true);
  const Credential credential = Credential::of_id({8}).value();
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
  const Channel dialler = channel_between(one, stream_to(other, true)).value();
  const std::array<std::uint8_t, 3> changed = {1, 2, 2};
  const std::array<std::uint8_t, 6> joined = {1, 2, 3, 4, 5, 6};
  const auto expect_refused = [&](base::ByteView own_hello, base::ByteView peers_hello) {
    MemberStream stream = stream_to(one, false);
    stream.own_hello = own_hello;
    stream.peers_hello = peers_hello;
    const Channel dialled = channel_between(other, stream).value();
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
}  // namespace spillway::runtime
