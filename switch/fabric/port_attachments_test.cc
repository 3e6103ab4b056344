// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/port_attachments.h"

#include <gtest/gtest.h>

#include "sim/scenario/scenario.h"

namespace spillway::fabric {
namespace {

base::Result<std::vector<PortAttachment>> attachments(const std::string& lines) {
  const auto scenario = scenario::parse_scenario("topology one-switch hosts=2\n" + lines);
  EXPECT_TRUE(scenario.ok()) << scenario.status().message();
  const auto topology = scenario::build_topology(*scenario);
  EXPECT_TRUE(topology.ok()) << topology.status().message();
  return port_attachments(*scenario, *topology);
}

void expect_error(const std::string& lines, const std::vector<std::string>& parts) {
  const auto result = attachments(lines);
  ASSERT_FALSE(result.ok()) << lines;
  for (const std::string& part : parts) {
    EXPECT_NE(result.status().message().find(part), std::string::npos)
        << part << " not in: " << result.status().message();
  }
}

TEST(PortAttachments, ComeInTheTopologysOrder) {
  const auto result =
      attachments("port host=host1 interface=veth1\nport host=host0 interface=veth0\n");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ((*result)[0].interface, "veth0");
  EXPECT_EQ((*result)[1].interface, "veth1");
}

TEST(PortAttachments, ARelayHasTwoAddresses) {
  const auto result = attachments(
      "port host=host0 listen=127.0.0.1:7100 deliver=127.0.0.1:7000\n"
      "port host=host1 listen=[::1]:7101 deliver=[::1]:7001\n");
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ((*result)[0].listen.to_string(), "127.0.0.1:7100");
  EXPECT_EQ((*result)[1].deliver.to_string(), "[::1]:7001");
}

TEST(PortAttachments, ErrorsNameTheLineAndWhatToDo) {
  expect_error("port host=host0 interface=a\n", {"host1", "interface=NAME"});
  expect_error("port host=nobody interface=a\n", {"line 2", "nobody", "host0 to host1"});
  expect_error("port host=host0 interface=a\nport host=host0 interface=b\n", {"line 3", "second"});
  expect_error("port host=host0 listen=127.0.0.1:1\n", {"line 2", "deliver="});
  expect_error("port host=host0 listen=here deliver=127.0.0.1:1\n", {"line 2", "listen", "here"});
}

}  // namespace
}  // namespace spillway::fabric
