// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/message.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace spillway::runtime {
namespace {

Hello some_hello() {
  return {.nonce = {1, 2, 3},
          .instance = 0x1122334455667788,
          .world = 8,
          .rank = 7,
          .patience = base::seconds(30),
          .left = base::milliseconds(1500),
          .version = "1.2.3",
          .blob = {9, 8, 7}};
}

Frame only_frame(const Blob& bytes) {
  FrameReader reader(most_answer_bytes(8));
  reader.append(bytes);
  return reader.next().value().value();
}

TEST(RendezvousMessage, HellosComeBackAsTheyWere) {
  const Frame frame = only_frame(encode(some_hello()));
  EXPECT_EQ(frame.type, FrameType::kHello);
  const Hello hello = parse_hello(frame.body).value();
  EXPECT_EQ(hello.nonce, some_hello().nonce);
  EXPECT_EQ(hello.instance, some_hello().instance);
  EXPECT_EQ(hello.world, 8U);
  EXPECT_EQ(hello.rank, 7U);
  EXPECT_EQ(hello.patience, base::seconds(30));
  EXPECT_EQ(hello.left, base::milliseconds(1500));
  EXPECT_EQ(hello.version, "1.2.3");
  EXPECT_EQ(hello.blob, (Blob{9, 8, 7}));
}

TEST(RendezvousMessage, AnswersComeBackAsTheyWere) {
  const std::vector<Blob> blobs = {{1}, {}, Blob(kMaxBlobBytes, 5)};
  EXPECT_EQ(parse_gather(only_frame(encode_gather(blobs)).body, 3).value(), blobs);
  EXPECT_FALSE(parse_gather(only_frame(encode_gather(blobs)).body, 4).ok());
  const Refusal refusal = parse_refusal(only_frame(encode(Refusal{true, "no"})).body).value();
  EXPECT_TRUE(refusal.final);
  EXPECT_EQ(refusal.reason, "no");
  EXPECT_EQ(parse_failure(only_frame(encode_failure("a\nb")).body).value(), "a?b");
  EXPECT_EQ(only_frame(encode_welcome()).type, FrameType::kWelcome);
}

TEST(RendezvousMessage, FramesArriveInAnyPieces) {
  Blob stream = encode(some_hello());
  const Blob second = encode_welcome();
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
  Blob header(encode_gather({Blob(100)}));
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
  Blob bytes = encode_welcome();
  bytes[4] = 2;
  FrameReader reader(kMaxHelloBytes);
  reader.append(bytes);
  EXPECT_EQ(reader.next().status().code(), base::StatusCode::kForeign);
}

TEST(RendezvousMessage, DamagedBytesGiveValuesOrErrors) {
  base::RandomSequence random(7);
  const Blob good = encode(some_hello());
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
    }
  }
}

}  // namespace
}  // namespace spillway::runtime
