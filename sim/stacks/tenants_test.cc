// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/job.h"

#include <gtest/gtest.h>

#include "sim/simulation.h"
#include "sim/stacks/tenants.h"

namespace spillway::sim {
namespace {

scenario::Scenario parsed_tenants(const std::string& text) {
  base::Result<scenario::Scenario> scenario = scenario::parse_scenario(text);
  EXPECT_TRUE(scenario.ok()) << scenario.status().message();
  return scenario.ok() ? std::move(scenario).value() : scenario::Scenario();
}

// Two hosts at 1 Gb/s with only the tenant, which must outlive the network.
struct World {
  explicit World(const std::string& tenant)
      : scenario(parsed_tenants("topology one-switch hosts=2 rate=1gbit delay=1us\n"
                                "switch mode=ecn queue=200k ecn=30k\n" +
                                tenant)),
        topology(scenario::build_topology(scenario).value()),
        network(topology, 1),
        status(tenants.add_to(network, topology, scenario.tenants)) {
    EXPECT_TRUE(status.ok()) << status.message();
  }

  const LinkCounters& run(base::Duration time) {
    network.run_until(base::Instant(time));
    return network.port(1).transmitter().counters();
  }

  scenario::Scenario scenario;
  scenario::Topology topology;
  Tenants tenants;
  Network network;
  base::Status status;
};

TEST(Tenant, UdpSendsItsShareOfTheLink) {
  World world("tenant from=host0 to=host1 rate=50% off=0\n");
  // 500 Mb/s of 1,538 bytes each on the wire.
  EXPECT_NEAR(static_cast<double>(world.run(base::seconds(1)).packets), 500e6 / (1538 * 8), 2);
  EXPECT_EQ(world.network.totals().delivered,
            world.network.port(1).transmitter().counters().packets);
}

TEST(Tenant, UdpIsSilentInItsPauses) {
  World world("tenant from=host0 to=host1 rate=100mbit on=2ms off=8ms start=5ms\n");
  EXPECT_EQ(world.run(base::milliseconds(5)).packets, 0U);
  const std::uint64_t first = world.run(base::milliseconds(8)).packets;
  EXPECT_EQ(first, 17U);  // in 2 ms one every 123 us, the first at once
  EXPECT_EQ(world.run(base::milliseconds(14)).packets, first);
  EXPECT_EQ(world.run(base::milliseconds(24)).packets, 2 * first);
  EXPECT_EQ(world.run(base::milliseconds(1'004)).packets, 100 * first);
}

TEST(Tenant, BytesThatGotThroughAreCountedBesideThoseThatWereWanted) {
  World alone("tenant from=host0 to=host1 rate=50% on=5ms off=5ms start=10ms\n");
  alone.run(base::milliseconds(110));
  const std::uint64_t wanted = alone.tenants.wanted_bytes(alone.network.now());
  EXPECT_NEAR(static_cast<double>(wanted), 500e6 / 8 * 0.05 * 1514 / 1538, 2 * 1514);
  EXPECT_NEAR(static_cast<double>(alone.tenants.delivered_bytes()), static_cast<double>(wanted),
              0.01 * static_cast<double>(wanted));
  World crowded(
      "tenant from=host0 to=host1 rate=100% off=0\ntenant from=host0 to=host1 rate=100% off=0\n");
  crowded.run(base::milliseconds(100));
  EXPECT_NEAR(static_cast<double>(crowded.tenants.delivered_bytes()) /
                  static_cast<double>(crowded.tenants.wanted_bytes(crowded.network.now())),
              0.5, 0.02);
  World tcp("tenant from=host0 to=host1 protocol=dctcp rate=50% on=5ms off=5ms\n");
  tcp.run(base::milliseconds(100));
  EXPECT_NEAR(static_cast<double>(tcp.tenants.delivered_bytes()),
              static_cast<double>(tcp.tenants.wanted_bytes(tcp.network.now())), 500e6 / 8 * 0.006);
}

TEST(Tenant, UdpBeyondTheLinksRateFillsItAndNoMore) {
  World world("tenant from=host0 to=host1 rate=5gbit on=10ms off=10ms\n");
  EXPECT_NEAR(static_cast<double>(world.run(base::milliseconds(995)).packets), 0.5e9 / (1538 * 8),
              60);
}

TEST(Tenant, TcpSendsAFlowPerPeriodAndForgetsThem) {
  for (const std::string protocol : {"newreno", "dctcp"}) {
    World world("tenant from=host0 to=host1 rate=200mbit on=10ms off=10ms protocol=" + protocol +
                "\n");
    // 250 kB per period: 172 segments of 1,460 bytes.
    EXPECT_EQ(world.run(base::milliseconds(20) - base::nanoseconds(1)).packets, 172U) << protocol;
    EXPECT_EQ(world.run(base::seconds(2) - base::nanoseconds(1)).packets, 100 * 172U) << protocol;
    EXPECT_EQ(world.network.pool().in_use(), 0U);
  }
}

TEST(Tenant, TcpThatFallsBehindGoesOnAsFastAsItCan) {
  World world("tenant from=host0 to=host1 protocol=dctcp rate=5gbit on=10ms off=0\n");
  const double bits = static_cast<double>(world.run(base::seconds(1)).bytes) * 8;
  EXPECT_GT(bits, 0.85e9);
}

TEST(Tenant, ARunDoesNotWaitForItAndFeelsIt) {
  const std::string alone =
      "topology one-switch hosts=3 rate=1gbit\njob pattern=incast bytes=1MB senders=1 hosts=2\n";
  const auto quiet = run_scenario(parsed_tenants(alone));
  const auto busy =
      run_scenario(parsed_tenants(alone + "tenant from=host2 to=host0 rate=80% off=0\n" +
                                  "tenant from=host2 to=host1 rate=20% off=0\n"));
  ASSERT_TRUE(quiet.ok() && busy.ok());
  EXPECT_TRUE(quiet->finished && busy->finished);
  EXPECT_GT(busy->jobs[0].makespan, quiet->jobs[0].makespan);
}

TEST(Tenant, SeveralShareHostsWithJobs) {
  const auto result = run_scenario(
      parsed_tenants("topology one-switch hosts=3 rate=1gbit\njob pattern=all-to-all bytes=100kB\n"
                     "tenant from=host0 to=host1 rate=10% off=0\n"
                     "tenant from=host1 to=host0 rate=10% protocol=dctcp\n"
                     "tenant from=host0 to=host2 rate=10% protocol=newreno\n"));
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->jobs[0].ended, 6U);
  EXPECT_EQ(result->jobs[0].failed, 0U);
}

void expect_error(const std::string& line, const std::vector<std::string>& parts) {
  const base::Result<scenario::Scenario> scenario =
      scenario::parse_scenario("seed 1\n" + line + "\njob bytes=1MB\n");
  const std::string message =
      scenario.ok() ? run_scenario(*scenario).status().message() : scenario.status().message();
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' not in: " << message;
  }
}

TEST(Tenant, ErrorsNameTheLineAndTheKey) {
  expect_error("tenant from=host0", {"line 2", "to=NAME"});
  expect_error("tenant from=host0 to=host0", {"line 2", "same host"});
  expect_error("tenant from=host0 to=nobody", {"line 2", "nobody", "host0 to host7"});
  expect_error("tenant from=host0 to=host1 rate=0", {"line 2", "rate=0", "above zero"});
  expect_error("tenant from=host0 to=host1 rate=0bit", {"line 2", "rate=0bit"});
  expect_error("tenant from=host0 to=host1 rate=100bit", {"line 2", "cannot be timed"});
  expect_error("tenant from=host0 to=host1 rate=100tbit", {"line 2", "cannot be timed"});
  expect_error("tenant from=host0 to=host1 rate=0.001ppm", {"line 2", "cannot be timed"});
  expect_error("tenant from=host0 to=host1 on=0", {"line 2", "on="});
  expect_error("tenant from=host0 to=host1 protocol=quic", {"line 2", "udp, newreno, dctcp"});
  expect_error("tenant from=host0 to=host1 protocol=dctcp rate=100gbit on=9s",
               {"line 2", "shorter"});
  expect_error("tenant from=host0 to=host1 speed=9", {"line 2", "speed", "rate"});
}

}  // namespace
}  // namespace spillway::sim
