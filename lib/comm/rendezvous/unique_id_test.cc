// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/unique_id.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace spillway::runtime {
namespace {

net::SocketAddress loopback() {
  return net::SocketAddress::parse("127.0.0.1:0").value();
}

TEST(UniqueId, CarriesAnAddressAndANonce) {
  for (const char* text : {"10.0.0.1:29517", "[fd00::1]:29517"}) {
    const UniqueIdContent content{net::SocketAddress::parse(text).value(), random_nonce().value()};
    const auto parsed = parse_unique_id(encode_unique_id(content));
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->address, content.address);
    EXPECT_EQ(parsed->nonce, content.nonce);
  }
}

TEST(UniqueId, AnyChangedBitIsNoticed) {
  const UniqueId id = encode_unique_id(
      {net::SocketAddress::parse("10.0.0.1:29517").value(), random_nonce().value()});
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
}  // namespace spillway::runtime
