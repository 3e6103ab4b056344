// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/handshake.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace spillway::comm {
namespace {

constexpr Random kJoinerRandom = {1, 1, 1};
constexpr Random kHostRandom = {2, 2, 2};

Credential secret_of(const std::string& text) {
  return Credential::of_secret({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()})
      .value();
}
const Credential kRight = secret_of("the secret of this job");
const Credential kWrong = secret_of("the secret of another!");
const Credential kNothing;

// Both sides of one connection.
struct Pair {
  JoinerHandshake joiner;
  HostHandshake host;

  Pair(const Credential& of_joiner, const Credential& of_host, const Random& joiner_random,
       const Random& host_random)
      : joiner(of_joiner, joiner_random), host(of_host, host_random) {}
  explicit Pair(const Credential& both) : Pair(both, both, kJoinerRandom, kHostRandom) {}

  Frame challenge() { return host.take(joiner.opening()).value().value(); }
  void meet() {
    const auto proof = joiner.take(challenge()).value();
    if (proof) {
      EXPECT_FALSE(host.take(*proof).value().has_value());
    }
  }
};

Frame only(const Blob& bytes) {
  FrameReader reader(kMaxAnswerBytes);
  reader.append(bytes);
  return reader.next().value().value();
}

void expect_heard(Channel from, Channel to) {
  for (const std::string text : {"hello", "", "again"}) {
    const Frame sent{FrameType::kFailure, Blob(text.begin(), text.end())};
    const Frame came = to.unpack(only(from.pack(sent).value())).value();
    EXPECT_EQ(came.type, sent.type);
    EXPECT_EQ(text_of(came), text);
  }
}

TEST(RendezvousHandshake, BothWhoKnowTheSecretMeetAndHearEachOther) {
  Pair pair(kRight);
  pair.meet();
  ASSERT_TRUE(pair.joiner.is_done() && pair.host.is_done());
  EXPECT_TRUE(pair.joiner.channel().is_sealed() && pair.host.channel().is_sealed());
  expect_heard(pair.joiner.channel(), pair.host.channel());
  expect_heard(pair.host.channel(), pair.joiner.channel());
}

TEST(RendezvousHandshake, HoldersOfAnIdMeetAndOthersDoNot) {
  const Credential id = Credential::of_id({1, 2, 3}).value();
  Pair pair(id);
  pair.meet();
  expect_heard(pair.joiner.channel(), pair.host.channel());
  const Credential other = Credential::of_id({1, 2, 4}).value();
  Pair apart(other, id, kJoinerRandom, kHostRandom);
  EXPECT_FALSE(apart.joiner.take(apart.challenge()).ok());
}

TEST(RendezvousHandshake, WithoutAKeyItIsPlain) {
  Pair pair(kNothing);
  pair.meet();
  ASSERT_TRUE(pair.joiner.is_done() && pair.host.is_done());
  EXPECT_FALSE(pair.joiner.channel().is_sealed() || pair.host.channel().is_sealed());
  expect_heard(pair.joiner.channel(), pair.host.channel());
}

TEST(RendezvousHandshake, AHostThatDoesNotKnowTheSecretHearsNothingButTheOpening) {
  Pair pair(kRight, kWrong, kJoinerRandom, kHostRandom);
  const auto answer = pair.joiner.take(pair.challenge());
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.status().message().find("did not prove"), std::string::npos);
  EXPECT_FALSE(pair.joiner.is_done());
  EXPECT_EQ(pair.joiner.opening().body.size(), 1 + sizeof(Random));
}

TEST(RendezvousHandshake, AGuestThatDoesNotKnowTheSecretIsUnproven) {
  Pair pair(kRight);
  pair.challenge();
  const auto proof = JoinerHandshake(kWrong, kJoinerRandom)
                         .take(HostHandshake(kWrong, kHostRandom)
                                   .take(JoinerHandshake(kWrong, kJoinerRandom).opening())
                                   .value()
                                   .value())
                         .value();
  EXPECT_FALSE(pair.host.take(*proof).ok());
  EXPECT_EQ(pair.host.fault(), StrangerKind::kUnproven);
  EXPECT_FALSE(pair.host.is_done());
}

TEST(RendezvousHandshake, AProofIsGoodForItsConnectionOnly) {
  Pair before(kRight);
  const Frame challenge = before.challenge();
  const Frame proof = before.joiner.take(challenge).value().value();
  // The same opening to a host with another random, and the same challenge to another joiner.
  HostHandshake host(kRight, {3});
  ASSERT_TRUE(host.take(before.joiner.opening()).ok());
  EXPECT_FALSE(host.take(proof).ok());
  JoinerHandshake joiner(kRight, {4});
  EXPECT_FALSE(joiner.take(challenge).ok());
}

TEST(RendezvousHandshake, WhatAHostProvedIsNoGuestsProof) {
  Pair pair(kRight);
  const Challenge challenge = parse_challenge(pair.challenge().body).value();
  EXPECT_FALSE(pair.host.take(encode(challenge.proof)).ok());
  EXPECT_EQ(pair.host.fault(), StrangerKind::kUnproven);
  // Even if the stranger sent the host's own random as its own.
  HostHandshake mirrored(kRight, kHostRandom);
  const Frame again = mirrored.take(encode(Opening{Keying::kSecret, kHostRandom})).value().value();
  EXPECT_FALSE(mirrored.take(encode(parse_challenge(again.body)->proof)).ok());
}

TEST(RendezvousHandshake, OneSideWithASecretAndOneWithoutSaySo) {
  const std::string advice = "give SPILLWAY_SECRET_FILE to all ranks or to none";
  for (const bool guest_has : {true, false}) {
    Pair pair(guest_has ? kRight : kNothing, guest_has ? kNothing : kRight, kJoinerRandom,
              kHostRandom);
    const auto challenge = pair.host.take(pair.joiner.opening());
    ASSERT_FALSE(challenge.ok());
    EXPECT_EQ(pair.host.fault(), StrangerKind::kKeying);
    EXPECT_NE(challenge.status().message().find(advice), std::string::npos);
    // A joiner also rejects a host that ignores the joiner's keying.
    const Keying other = guest_has ? Keying::kNone : Keying::kSecret;
    const auto answer = pair.joiner.take(encode(Challenge{other, kHostRandom, {}}));
    ASSERT_FALSE(answer.ok());
    EXPECT_NE(answer.status().message().find(advice), std::string::npos);
  }
}

TEST(RendezvousHandshake, WhatComesInPlaceOfTheHandshakeIsAnError) {
  for (const FrameType type : {FrameType::kGather, FrameType::kFailure, FrameType::kWelcome,
                               FrameType::kHello, FrameType::kProof}) {
    Pair pair(kRight);
    EXPECT_FALSE(pair.joiner.take({type, Blob(32)}).ok());
    EXPECT_FALSE(pair.joiner.take(pair.challenge()).ok()) << "there is no way on";
    Pair other(kRight);
    EXPECT_FALSE(other.host.take({type, Blob(32)}).ok());
    EXPECT_EQ(other.host.fault(), StrangerKind::kNoise);
    EXPECT_FALSE(other.host.take(other.joiner.opening()).ok());
  }
  Pair refused(kRight);
  const auto answer = refused.joiner.take(encode(Refusal{true, "go away"}));
  EXPECT_EQ(answer.status().message(), "go away");
}

TEST(RendezvousHandshake, ConnectionsOfOneJobHaveKeysOfTheirOwn) {
  Pair one(kRight);
  one.meet();
  Pair other(kRight, kRight, {5}, kHostRandom);
  other.meet();
  Channel from = one.host.channel();
  Channel to = other.joiner.channel();
  EXPECT_FALSE(to.unpack(only(from.pack(encode_welcome()).value())).ok());
}

// ------------------------------------------------------------------ sealed frames

struct SealedPair {
  Channel joiner;
  Channel host;
};

SealedPair sealed_pair() {
  Pair pair(kRight);
  pair.meet();
  return {pair.joiner.channel(), pair.host.channel()};
}

TEST(RendezvousChannel, NothingOfWhatIsSaidCanBeRead) {
  SealedPair pair = sealed_pair();
  const Blob bytes = pair.host.pack(encode_failure("10.1.2.3:4567")).value();
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()).find("10.1.2.3"), std::string::npos);
}

TEST(RendezvousChannel, AFrameThatWasChangedAnywhereDoesNotOpen) {
  const Blob good = sealed_pair().host.pack(encode_failure("come to nothing")).value();
  for (std::size_t at = 6; at < good.size(); ++at) {
    for (const std::uint8_t flip : {0x01, 0x80}) {
      Blob bad = good;
      bad[at] ^= flip;
      FrameReader reader(kMaxAnswerBytes);
      reader.append(bad);
      auto frame = reader.next();
      if (frame.ok() && frame->has_value()) {
        Channel joiner = sealed_pair().joiner;
        EXPECT_EQ(joiner.unpack(**frame).status().code(), base::StatusCode::kCorrupt) << at;
      }
    }
  }
}

TEST(RendezvousChannel, FramesRepeatedLeftOutOrSentBackDoNotOpen) {
  SealedPair pair = sealed_pair();
  const Frame first = only(pair.host.pack(encode_welcome()).value());
  const Frame second = only(pair.host.pack(encode_welcome()).value());
  Channel repeated = pair.joiner;
  EXPECT_TRUE(repeated.unpack(first).ok());
  EXPECT_FALSE(repeated.unpack(first).ok());
  Channel skipped = pair.joiner;
  EXPECT_FALSE(skipped.unpack(second).ok());
  Channel sent_back = pair.host;
  EXPECT_FALSE(sent_back.unpack(first).ok());
  EXPECT_FALSE(pair.joiner.unpack({FrameType::kWelcome, {}}).ok()) << "plain, or cut to nothing";
}

TEST(RendezvousHandshake, DamagedFramesGiveAnswersOrErrors) {
  base::RandomSequence random(11);
  Pair good(kRight);
  const Frame challenge = good.challenge();
  const Frame proof = good.joiner.take(challenge).value().value();
  for (int i = 0; i < 2000; ++i) {
    Pair pair(kRight);
    for (Frame frame : {pair.joiner.opening(), challenge, proof}) {
      frame.body.resize(random.next_below(frame.body.size() + 2));
      if (!frame.body.empty()) {
        frame.body[random.next_below(frame.body.size())] ^=
            static_cast<std::uint8_t>(1U << random.next_below(8));
      }
      (void)pair.host.take(frame);
      (void)pair.joiner.take(frame);
    }
    EXPECT_FALSE(pair.host.is_done() || pair.joiner.is_done());
  }
}

}  // namespace
}  // namespace spillway::comm
