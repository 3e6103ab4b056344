// SPDX-License-Identifier: Apache-2.0
#include "net/address.h"

#include <gtest/gtest.h>

namespace spillway::net {
namespace {

TEST(SocketAddress, ReadsWhatItWrites) {
  for (const char* text : {"127.0.0.1:7000", "0.0.0.0:0", "[::1]:65535", "[fd77::1]:7077"}) {
    const base::Result<SocketAddress> address = SocketAddress::parse(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(address->to_string(), text);
  }
}

TEST(SocketAddress, RefusesWhatIsNone) {
  for (const char* text : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "localhost:1",
                           "::1:80", "[::1]", "[]:1", "127.0.0.1:7x"}) {
    const base::Result<SocketAddress> address = SocketAddress::parse(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_NE(address.status().message().find("10.0.0.1:7000"), std::string::npos);
  }
}

TEST(SocketAddress, ComparesAddressAndPort) {
  const SocketAddress a = SocketAddress::parse("10.0.0.1:1").value();
  EXPECT_EQ(a, SocketAddress::parse("10.0.0.1:1").value());
  EXPECT_NE(a, a.with_port(2));
  EXPECT_NE(a, SocketAddress::parse("[::1]:1").value());
}

TEST(SocketAddress, ReadsLists) {
  const auto addresses = parse_addresses("10.0.0.1:1,[::1]:2");
  ASSERT_TRUE(addresses.ok());
  ASSERT_EQ(addresses->size(), 2U);
  EXPECT_EQ((*addresses)[1].port(), 2);
  EXPECT_TRUE(parse_addresses("")->empty());
  EXPECT_FALSE(parse_addresses("10.0.0.1:1,x").ok());
}

}  // namespace
}  // namespace spillway::net
