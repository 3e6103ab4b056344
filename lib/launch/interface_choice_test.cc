// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "launch/launch.h"

namespace spillway::launch {

namespace {

net::InterfaceAddress interface(const std::string& name, const std::string& address,
                                bool up = true) {
  return {.name = name,
          .up = up,
          .loopback = name == "lo",
          .address = net::SocketAddress::parse(address).value()};
}

std::vector<net::InterfaceAddress> host() {
  return {interface("lo", "127.0.0.1:0"),         interface("lo", "[::1]:0"),
          interface("docker0", "172.17.0.1:0"),   interface("virbr0", "192.168.122.1:0"),
          interface("eth0", "10.1.0.1:0", false), interface("eth1", "[fe80::1]:0"),
          interface("eth1", "[fd00::1]:0"),       interface("eth1", "10.2.0.1:0"),
          interface("ib0", "10.3.0.1:0"),         interface("eth10", "10.4.0.1:0")};
}

struct Row {
  const char* names;
  AddressFamily family;
  bool one_machine;
  const char* expected;  // "" for an error
};

TEST(Interfaces, AreChosenAsNcclChooses) {
  constexpr auto kAny = AddressFamily::kAny;
  constexpr auto kIpv4 = AddressFamily::kIpv4;
  constexpr auto kIpv6 = AddressFamily::kIpv6;
  for (const Row& row : std::initializer_list<Row>{
           {"", kAny, false, "10.2.0.1:0"},          // not down, docker, virbr or link-local
           {"", kIpv6, false, "[fd00::1]:0"},        //
           {"", kAny, true, "127.0.0.1:0"},          //
           {"", kIpv6, true, "[::1]:0"},             //
           {"ib", kAny, false, "10.3.0.1:0"},        // a prefix
           {"ib,eth", kAny, false, "10.2.0.1:0"},    // in the host's order
           {"eth1", kIpv4, false, "10.2.0.1:0"},     //
           {"=eth10", kAny, false, "10.4.0.1:0"},    // exactly
           {"=eth", kAny, false, ""},                //
           {"eth0", kAny, false, ""},                // down
           {"ib", kIpv6, false, ""},                 // has none
           {"^eth", kAny, false, "10.3.0.1:0"},      // none of these
           {"^=eth1", kAny, false, "10.3.0.1:0"},    //
           {"^eth,ib", kAny, false, "127.0.0.1:0"},  // nothing outward is left
           {"^eth,ib,lo", kAny, false, ""},          //
           {"docker", kAny, false, "172.17.0.1:0"},  // named explicitly
           {"eth1", kAny, true, "10.2.0.1:0"}}) {    // the name wins
    const auto chosen = choose_interface(
        host(), {.names = row.names, .family = row.family, .one_machine = row.one_machine});
    EXPECT_EQ(chosen.ok() ? chosen->address.to_string() : "", row.expected) << row.names;
  }
}

TEST(Interfaces, WithNothingButLoopbackItIsLoopback) {
  const std::vector<net::InterfaceAddress> bare = {interface("lo", "127.0.0.1:0")};
  EXPECT_EQ(choose_interface(bare, {})->name, "lo");
  EXPECT_FALSE(choose_interface({}, {}).ok());
}

TEST(Interfaces, ErrorsSayWhatThereIs) {
  const auto chosen = choose_interface(
      host(), {.names = "wlan", .family = AddressFamily::kAny, .one_machine = false});
  ASSERT_FALSE(chosen.ok());
  EXPECT_NE(chosen.status().message().find("lo, docker0, virbr0, eth1, ib0, eth10"),
            std::string::npos)
      << chosen.status().message();
}

TEST(Interfaces, TheFamilyIsReadFromTheEnvironment) {
  EXPECT_EQ(interface_choice({{"SPILLWAY_SOCKET_FAMILY", "AF_INET6"}}, false)->family,
            AddressFamily::kIpv6);
  EXPECT_EQ(interface_choice({{"SPILLWAY_SOCKET_IFNAME", "=eth0"}}, true)->names, "=eth0");
  EXPECT_EQ(interface_choice({{"SPILLWAY_SOCKET_FAMILY", "6"}}, false).status().message(),
            "SPILLWAY_SOCKET_FAMILY is '6': it must be AF_INET or AF_INET6");
}

TEST(Interfaces, OfThisHostIncludeLoopback) {
  const auto interfaces = net::interface_addresses();
  ASSERT_TRUE(interfaces.ok());
  EXPECT_TRUE(std::any_of(interfaces->begin(), interfaces->end(),
                          [](const net::InterfaceAddress& each) { return each.loopback; }));
}

}  // namespace

}  // namespace spillway::launch
