// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/random.h"
#include "comm/rendezvous/message.h"
#include "comm/rendezvous/rendezvous.h"

namespace spillway::comm {

namespace {

Hello some_hello() {
  return {.nonce = {1, 2, 3},
          .random = {4, 5, 6},
          .instance = 0x1122334455667788,
          .world = 8,
          .rank = 7,
          .patience = base::seconds(30),
          .left = base::milliseconds(1500),
          .version = "1.2.3",
          .blob = {9, 8, 7}};
}

Frame only_frame(const Frame& frame) {
  FrameReader reader(kMaxAnswerBytes);
  reader.append(to_bytes(frame));
  return reader.next().value().value();
}

Blob joined(const std::vector<Frame>& parts) {
  Blob bytes;
  for (const Frame& part : parts) {
    bytes.insert(bytes.end(), part.body.begin(), part.body.end());
  }
  return bytes;
}

Gather some_gather() {
  Gather gather{.drawn = {}, .randoms = {{1}, {2}, {3}}, .blobs = {{1}, {}, Blob(4096, 5)}};
  gather.drawn.bytes.fill(9);
  return gather;
}

TEST(RendezvousMessage, HellosComeBackAsTheyWere) {
  const Frame frame = only_frame(encode(some_hello()));
  EXPECT_EQ(frame.type, FrameType::kHello);
  const Hello hello = parse_hello(frame.body).value();
  EXPECT_EQ(hello.nonce, some_hello().nonce);
  EXPECT_EQ(hello.random, some_hello().random);
  EXPECT_EQ(hello.instance, some_hello().instance);
  EXPECT_EQ(hello.world, 8U);
  EXPECT_EQ(hello.rank, 7U);
  EXPECT_EQ(hello.patience, base::seconds(30));
  EXPECT_EQ(hello.left, base::milliseconds(1500));
  EXPECT_EQ(hello.version, "1.2.3");
  EXPECT_EQ(hello.blob, (Blob{9, 8, 7}));
}

TEST(RendezvousMessage, AnswersComeBackAsTheyWere) {
  const Gather gather = parse_gather(joined(encode(some_gather())), 3).value();
  EXPECT_EQ(gather.blobs, some_gather().blobs);
  EXPECT_EQ(gather.randoms, some_gather().randoms);
  EXPECT_EQ(gather.drawn, some_gather().drawn);
  EXPECT_FALSE(parse_gather(joined(encode(some_gather())), 4).ok());
  const Refusal refusal = parse_refusal(only_frame(encode(Refusal{true, "no"})).body).value();
  EXPECT_TRUE(refusal.final);
  EXPECT_EQ(refusal.reason, "no");
  EXPECT_EQ(parse_failure(only_frame(encode_failure("a\nb")).body).value(), "a\\x0ab");
  EXPECT_EQ(only_frame(encode_welcome()).type, FrameType::kWelcome);
}

TEST(RendezvousMessage, HandshakesComeBackAsTheyWere) {
  const Frame opening = only_frame(encode(Opening{Keying::kId, {7}}));
  EXPECT_EQ(opening.type, FrameType::kOpening);
  EXPECT_EQ(parse_opening(opening.body)->keying, Keying::kId);
  EXPECT_EQ(parse_opening(opening.body)->random, Random{7});
  const Frame challenge = only_frame(encode(Challenge{Keying::kSecret, {8}, {9}}));
  EXPECT_EQ(challenge.type, FrameType::kChallenge);
  EXPECT_EQ(challenge.body.size(), kMaxHandshakeBytes);
  EXPECT_EQ(parse_challenge(challenge.body)->random, Random{8});
  EXPECT_EQ(parse_challenge(challenge.body)->proof, Proof{9});
  const Frame plain = only_frame(encode(Challenge{Keying::kNone, {8}, {9}}));
  EXPECT_EQ(parse_challenge(plain.body)->proof, Proof{});  // no proof without a key
  const Frame proof = only_frame(encode(Proof{3}));
  EXPECT_EQ(proof.type, FrameType::kProof);
  EXPECT_EQ(parse_proof(proof.body).value(), Proof{3});
}

TEST(RendezvousMessage, HandshakesOfAnotherSizeOrKindAreNone) {
  Blob opening = encode(Opening{}).body;
  opening[0] = 3;
  EXPECT_FALSE(parse_opening(opening).ok());
  EXPECT_FALSE(parse_opening(Blob(32)).ok());
  EXPECT_FALSE(parse_opening(Blob(34)).ok());
  Blob challenge = encode(Challenge{Keying::kSecret, {}, {}}).body;
  challenge[0] = 0;
  EXPECT_FALSE(parse_challenge(challenge).ok());  // a proof without keying
  EXPECT_FALSE(parse_proof(Blob(31)).ok());
  EXPECT_FALSE(parse_proof(Blob(33)).ok());
}

TEST(RendezvousMessage, LongGathersComeInPartsOfWhichTheLastSaysSo) {
  Gather gather;
  gather.randoms.resize(40);
  gather.blobs.assign(40, Blob(kMaxBlobBytes, 1));
  const std::vector<Frame> parts = encode(gather);
  ASSERT_EQ(parts.size(), 6U);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_LE(parts[i].body.size(), kMaxPartBytes);
    EXPECT_EQ(parts[i].type, i + 1 < parts.size() ? FrameType::kGatherPart : FrameType::kGather);
  }
  EXPECT_LE(joined(parts).size(), most_gather_bytes(40));
  EXPECT_EQ(parse_gather(joined(parts), 40)->blobs, gather.blobs);
}

TEST(RendezvousMessage, FramesArriveInAnyPieces) {
  Blob stream = to_bytes(encode(some_hello()));
  const Blob second = to_bytes(encode_welcome());
  stream.insert(stream.end(), second.begin(), second.end());
  FrameReader reader(kMaxHelloBytes);
  std::vector<FrameType> types;
  for (const std::uint8_t byte : stream) {
    reader.append({&byte, 1});
    const auto frame = reader.next();
    ASSERT_TRUE(frame.ok());
    if (frame->has_value()) {
      types.push_back((*frame)->type);
    }
  }
  EXPECT_EQ(types, (std::vector<FrameType>{FrameType::kHello, FrameType::kWelcome}));
}

TEST(RendezvousMessage, TooLongABodyIsRefusedBeforeItComes) {
  Blob header(to_bytes({FrameType::kGather, Blob(100)}));
  header.resize(kFrameHeaderBytes);
  FrameReader reader(50);
  reader.append(header);
  EXPECT_FALSE(reader.next().ok());
}

TEST(RendezvousMessage, StrangersAreKnownByTheirFirstByte) {
  FrameReader reader(kMaxHelloBytes);
  const std::uint8_t get = 'G';
  reader.append({&get, 1});
  EXPECT_FALSE(reader.next().ok());
}

TEST(RendezvousMessage, AnotherProtocolIsSaidToBeOne) {
  Blob bytes = to_bytes(encode_welcome());
  bytes[4] = 1;
  FrameReader reader(kMaxHelloBytes);
  reader.append(bytes);
  EXPECT_EQ(reader.next().status().code(), base::StatusCode::kForeign);
}

TEST(RendezvousMessage, DamagedBytesGiveValuesOrErrors) {
  base::RandomSequence random(7);
  const Blob good = to_bytes(encode(some_hello()));
  for (int i = 0; i < 20000; ++i) {
    Blob bytes = good;
    bytes.resize(random.next_below(good.size() + 1));
    for (std::uint64_t n = random.next_below(4); n > 0 && !bytes.empty(); --n) {
      bytes[random.next_below(bytes.size())] = static_cast<std::uint8_t>(random.next_word());
    }
    FrameReader reader(kMaxHelloBytes);
    reader.append(bytes);
    const auto frame = reader.next();
    if (frame.ok() && frame->has_value()) {
      const auto hello = parse_hello((*frame)->body);
      EXPECT_TRUE(!hello.ok() || hello->blob.size() <= kMaxBlobBytes);
      (void)parse_refusal((*frame)->body);
      (void)parse_gather((*frame)->body, 8);
      (void)parse_challenge((*frame)->body);
    }
  }
}

// ------------------------------------------------------------------ unique ids

net::SocketAddress loopback() {
  return net::SocketAddress::parse("127.0.0.1:0").value();
}

TEST(UniqueId, CarriesAnAddressAndANonce) {
  for (const char* text : {"10.0.0.1:29517", "[fd00::1]:29517"}) {
    const UniqueIdContent content{net::SocketAddress::parse(text).value(),
                                  launch::random_nonce().value()};
    const auto parsed = parse_unique_id(encode_unique_id(content));
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->address, content.address);
    EXPECT_EQ(parsed->nonce, content.nonce);
  }
}

TEST(UniqueId, AnyChangedBitIsNoticed) {
  const UniqueId id = encode_unique_id(
      {net::SocketAddress::parse("10.0.0.1:29517").value(), launch::random_nonce().value()});
  for (std::size_t bit = 0; bit < 8 * id.bytes.size(); ++bit) {
    UniqueId changed = id;
    changed.bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    EXPECT_FALSE(parse_unique_id(changed).ok()) << "bit " << bit;
  }
}

TEST(UniqueId, GarbageIsAnError) {
  EXPECT_FALSE(parse_unique_id(UniqueId{}).ok());
  base::RandomSequence random(1);
  for (int i = 0; i < 1000; ++i) {
    UniqueId id;
    for (std::uint8_t& byte : id.bytes) {
      byte = static_cast<std::uint8_t>(random.next_word());
    }
    EXPECT_FALSE(parse_unique_id(id).ok());
  }
}

TEST(UniqueId, ItsSocketIsThereOnce) {
  const auto id = create_unique_id(loopback());
  ASSERT_TRUE(id.ok()) << id.status().message();
  const UniqueIdContent content = parse_unique_id(*id).value();
  EXPECT_NE(content.address.port(), 0);
  EXPECT_TRUE(take_listener(content).valid());
  EXPECT_FALSE(take_listener(content).valid());
}

TEST(UniqueId, UnusedOnesAreLimitedAndCanBeDiscarded) {
  std::vector<UniqueId> ids;
  for (std::size_t i = 0; i < kMaxUnusedIds; ++i) {
    ids.push_back(create_unique_id(loopback()).value());
  }
  const auto one_more = create_unique_id(loopback());
  ASSERT_FALSE(one_more.ok());
  EXPECT_EQ(one_more.status().code(), base::StatusCode::kLimitExceeded);
  for (const UniqueId& id : ids) {
    discard_unique_id(id);
  }
  const auto again = create_unique_id(loopback());
  EXPECT_TRUE(again.ok());
  discard_unique_id(*again);
}

}  // namespace

}  // namespace spillway::comm
