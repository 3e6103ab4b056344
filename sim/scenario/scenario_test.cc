// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/scenario/scenario.h"
#include "transport/message.h"

namespace spillway::scenario {
namespace {

constexpr std::string_view kSmall = R"(
# A comment, then an empty line.

seed 7
limit 250ms
topology leaf-spine hosts=16 leaves=4 spines=2 rate=25gbit delay=2us spreading=packet  # behind
switch mode=ecn queue=200k ecn=50k
job protocol=dctcp pattern=incast bytes=1MB rto-min=1ms
)";

Scenario parsed(std::string_view text, std::vector<std::string> overrides = {}) {
  base::Result<Scenario> scenario = parse_scenario(text, overrides);
  EXPECT_TRUE(scenario.ok()) << scenario.status().message();
  return scenario.ok() ? std::move(scenario).value() : Scenario();
}

std::string scenario_error(std::string_view text, std::vector<std::string> overrides = {}) {
  const base::Result<Scenario> scenario = parse_scenario(text, overrides);
  EXPECT_FALSE(scenario.ok()) << text;
  return scenario.ok() ? "" : scenario.status().message();
}

void expect_scenario_error(std::string_view text, const std::vector<std::string>& parts) {
  const std::string message = scenario_error(text);
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' not in: " << message;
  }
}

base::BitRate uplink_rate(const Scenario& scenario) {
  return build_topology(scenario)->links.back().rate;
}

TEST(Scenario, UplinksAreAsFastAsHostsUnlessARateOrAShareIsGiven) {
  const std::string_view tree = "topology leaf-spine hosts=4 leaves=2 spines=2 rate=10gbit";
  EXPECT_EQ(uplink_rate(parsed(tree)), base::gigabits_per_second(10));
  EXPECT_EQ(uplink_rate(parsed(tree, {"topology.uplink-rate=50%"})), base::gigabits_per_second(5));
  EXPECT_EQ(uplink_rate(parsed(tree, {"topology.uplink-rate=50%", "topology.rate=2gbit"})),
            base::gigabits_per_second(1));
  EXPECT_EQ(uplink_rate(parsed(tree, {"topology.uplink-rate=40gbit", "topology.rate=2gbit"})),
            base::gigabits_per_second(40));
  for (const char* wrong : {"0%", "fast", "120%"}) {
    const std::string text = scenario_error(tree, {fmt::format("topology.uplink-rate={}", wrong)});
    EXPECT_NE(text.find("50%"), std::string::npos) << wrong << ": " << text;
  }
}

TEST(Scenario, EveryDirectiveIsRead) {
  const Scenario scenario = parsed(kSmall);
  EXPECT_EQ(scenario.seed, 7U);
  EXPECT_EQ(scenario.limit, base::milliseconds(250));
  EXPECT_EQ(scenario.topology.kind, TopologyKind::kLeafSpine);
  EXPECT_EQ(scenario.topology.hosts, 16U);
  EXPECT_EQ(scenario.topology.rate, base::gigabits_per_second(25));
  EXPECT_EQ(scenario.topology.spreading, Spreading::kPerPacket);
  EXPECT_EQ(scenario.port.mode, SPILLWAY_PORT_ECN);
  EXPECT_EQ(scenario.port.queue_bytes, 200U * 1024);
  EXPECT_EQ(scenario.port.red_min_bytes, 50U * 1024);
  EXPECT_EQ(scenario.port.red_max_bytes, 50U * 1024);
  ASSERT_EQ(scenario.jobs.size(), 1U);
  EXPECT_EQ(scenario.jobs[0].protocol, Protocol::kDctcp);
  EXPECT_EQ(scenario.jobs[0].pattern.kind, PatternKind::kIncast);
  EXPECT_EQ(scenario.jobs[0].pattern.bytes, 1'000'000U);
  EXPECT_EQ(scenario.jobs[0].tcp.rto_min, base::milliseconds(1));
}

TEST(Scenario, SpillwaySettingsReachTheirPlaces) {
  const Scenario scenario = parsed(
      "job protocol=spillway loss-bound=2% min-planes=3 packet=1400 paths=16 window-max=1m "
      "trimmed-target=10% unsolicited=32k checks=encryption real-bytes=yes required=5% "
      "unimportant=20% "
      "receive-rate=40gbit deadline=5ms first-number=4294967291");
  const Job& job = scenario.jobs.at(0);
  EXPECT_EQ(job.pattern.flow.loss.loss_bound_ppm, 20'000U);
  EXPECT_EQ(job.pattern.flow.loss.min_planes, 3);
  EXPECT_EQ(job.pattern.flow.required_permille, 50);
  EXPECT_EQ(job.pattern.flow.unimportant_permille, 200);
  EXPECT_EQ(job.spillway.packet_bytes, 1400U);
  EXPECT_EQ(job.spillway.exchange.paths, 16);
  EXPECT_EQ(job.spillway.exchange.window.most, base::bytes(1024 * 1024));
  EXPECT_DOUBLE_EQ(job.spillway.exchange.trimmed_target.value(), 0.1);
  EXPECT_EQ(job.spillway.exchange.unsolicited, base::bytes(32 * 1024));
  EXPECT_EQ(job.spillway.protection, wire::Protection::kEncryption);
  EXPECT_EQ(job.spillway.first_number, 4'294'967'291U);
  EXPECT_TRUE(job.spillway.real_bytes);
  EXPECT_EQ(job.spillway.receive_rate, base::gigabits_per_second(40));
  EXPECT_EQ(job.spillway.deadline, base::milliseconds(5));
}

TEST(Scenario, FaultsAreRead) {
  const Scenario scenario = parsed(
      "job\n"
      "fault kind=gray link=leaf0->spine1 share=5% from=1ms until=2ms\n"
      "fault kind=host-death host=3 from=4ms\n"
      "fault kind=skew host=2 ppm=-50 delay=1ms\n");
  ASSERT_EQ(scenario.faults.size(), 3U);
  EXPECT_EQ(scenario.faults[0].kind, FaultKind::kGray);
  EXPECT_EQ(scenario.faults[0].link, "leaf0->spine1");
  EXPECT_DOUBLE_EQ(scenario.faults[0].share, 0.05);
  EXPECT_EQ(scenario.faults[0].until, base::Instant(base::milliseconds(2)));
  EXPECT_EQ(scenario.faults[1].host, 3U);
  EXPECT_DOUBLE_EQ(scenario.faults[2].skew_ppm, -50.0);
}

TEST(Scenario, SwitchModeBringsItsDefaultsWhereverItStands) {
  const Scenario scenario = parsed("switch queue=99k mode=trim\njob");
  const spillway_port_config defaults = dataplane::default_port_config(SPILLWAY_PORT_TRIM);
  EXPECT_EQ(scenario.port.mode, SPILLWAY_PORT_TRIM);
  EXPECT_EQ(scenario.port.queue_bytes, 99U * 1024);
  EXPECT_EQ(scenario.port.trim_bytes, defaults.trim_bytes);
  EXPECT_EQ(scenario.port.control_share_percent, defaults.control_share_percent);
}

TEST(Scenario, SeveralJobsAndBackgroundKeepTheirOrder) {
  const Scenario scenario =
      parsed("job name=a\nbackground load=20% until=1ms\njob protocol=newreno start=1ms\n");
  ASSERT_EQ(scenario.jobs.size(), 3U);
  EXPECT_EQ(scenario.jobs[0].name, "a");
  EXPECT_EQ(scenario.jobs[1].pattern.kind, PatternKind::kBackground);
  EXPECT_EQ(scenario.jobs[1].protocol, Protocol::kDctcp);
  EXPECT_EQ(scenario.jobs[2].name, "job3");
  EXPECT_EQ(scenario.jobs[2].tcp.kind, TcpKind::kNewReno);
  EXPECT_EQ(scenario.jobs[2].pattern.start, base::Instant(base::milliseconds(1)));
}

TEST(Scenario, BadInputNamesTheLineTheOffenderAndWhatIsKnown) {
  expect_scenario_error("seed 1\nswich mode=ecn\n", {"line 2", "'swich'", "switch", "topology"});
  expect_scenario_error("job\n\nswitch quue=1k", {"line 3", "'quue'", "queue", "control-queue"});
  expect_scenario_error("job protocol=tcp", {"line 1", "protocol=tcp", "spillway, dctcp, newreno"});
  expect_scenario_error("job bytes=lots", {"line 1", "bytes=lots"});
  expect_scenario_error("job loss-bound=150%", {"line 1", "loss-bound=150%"});
  expect_scenario_error("job steps=-1", {"line 1", "steps=-1", "whole number"});
  expect_scenario_error("job priority=8", {"line 1", "priority=8", "0 to 7"});
  expect_scenario_error("job grouped=maybe", {"line 1", "grouped=maybe", "yes, no"});
  expect_scenario_error("job checks=none", {"line 1", "checks=none", "tags, encryption"});
  expect_scenario_error("topology ring", {"line 1", "ring", "one-switch, leaf-spine, fat-tree"});
  expect_scenario_error("seed x\njob", {"line 1", "seed x"});
  expect_scenario_error("limit 5\njob", {"line 1", "limit 5"});
  expect_scenario_error("job\nfault kind=fire link=a->b", {"line 2", "kind=fire", "host-death"});
  expect_scenario_error("background pattern=incast", {"line 1", "'pattern'", "load"});
}

TEST(Scenario, MalformedLinesAreRefused) {
  expect_scenario_error("job bytes=1k fast", {"line 1", "'fast'", "key=value"});
  expect_scenario_error("job fast", {"line 1", "'fast'", "key=value"});
  expect_scenario_error("job bytes=", {"line 1", "no value"});
  expect_scenario_error("job =5", {"line 1", "key=value"});
  expect_scenario_error("job bytes=1k bytes=2k", {"line 1", "'bytes' is given twice"});
  expect_scenario_error("seed=4\njob", {"line 1", "begins with a noun"});
  expect_scenario_error("seed 1\nseed 2\njob", {"line 2", "second 'seed'"});
}

TEST(Scenario, SettingsThatMakeNoSenseTogetherAreRefusedWithTheirLine) {
  expect_scenario_error("job\nswitch mode=spillway queue=0", {"line 2"});
  expect_scenario_error("job\nswitch mode=ecn queue=64k", {"line 2", "marks from", "ecn="});
  expect_scenario_error("job\nfault kind=loss share=1%", {"line 2"});
}

TEST(Scenario, OverridesReplaceAndAddSettings) {
  const Scenario scenario =
      parsed(kSmall, {"job.protocol=spillway", "switch.mode=spillway", "seed=9", "limit=1s",
                      "topology=one-switch", "topology.hosts=5", "job.loss-bound=3%"});
  EXPECT_EQ(scenario.jobs[0].protocol, Protocol::kSpillway);
  EXPECT_EQ(scenario.jobs[0].pattern.flow.loss.loss_bound_ppm, 30'000U);
  EXPECT_EQ(scenario.jobs[0].pattern.bytes, 1'000'000U);
  EXPECT_EQ(scenario.port.mode, SPILLWAY_PORT_SPILLWAY);
  EXPECT_EQ(scenario.port.queue_bytes, 200U * 1024);
  EXPECT_EQ(scenario.seed, 9U);
  EXPECT_EQ(scenario.limit, base::seconds(1));
  EXPECT_EQ(scenario.topology.kind, TopologyKind::kOneSwitch);
  EXPECT_EQ(scenario.topology.hosts, 5U);
}

TEST(Scenario, LaterOverridesWin) {
  EXPECT_EQ(parsed(kSmall, {"seed=1", "seed=2"}).seed, 2U);
}

TEST(Scenario, OverridesHoldForAllOfANounOrForTheNumberedOne) {
  const std::string_view text = "job bytes=1k\njob bytes=2k\n";
  const Scenario all = parsed(text, {"job.bytes=9k"});
  EXPECT_EQ(all.jobs[0].pattern.bytes, 9U * 1024);
  EXPECT_EQ(all.jobs[1].pattern.bytes, 9U * 1024);
  const Scenario second = parsed(text, {"job.2.bytes=9k"});
  EXPECT_EQ(second.jobs[0].pattern.bytes, 1U * 1024);
  EXPECT_EQ(second.jobs[1].pattern.bytes, 9U * 1024);
}

TEST(Scenario, OverrideOfAnAbsentNounAddsIt) {
  const Scenario scenario = parsed("job", {"switch.mode=drop-tail"});
  EXPECT_EQ(scenario.port.mode, SPILLWAY_PORT_DROP_TAIL);
}

TEST(Scenario, BadOverridesSayWhatIsWrong) {
  const auto has = [](const std::string& message, std::string_view part) {
    return message.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(scenario_error("job", {"job.bytes"}), "noun.key=value"));
  EXPECT_TRUE(has(scenario_error("job", {"=5"}), "noun.key=value"));
  EXPECT_TRUE(has(scenario_error("job", {"job.bytes="}), "noun.key=value"));
  EXPECT_TRUE(has(scenario_error("job", {"job.3.bytes=1k"}), "1 'job'"));
  EXPECT_TRUE(has(scenario_error("job", {"job.0.bytes=1k"}), "1 'job'"));
  EXPECT_TRUE(has(scenario_error("job", {"job.colour=red"}), "line 1 with job.colour=red"));
  EXPECT_TRUE(has(scenario_error("job", {"weather.wind=1"}), "unknown directive 'weather'"));
}

TEST(Scenario, PortsAndTenantsAreRead) {
  const Scenario scenario = parsed(
      "tenant from=a to=b rate=500mbit on=1ms off=0 start=2ms protocol=dctcp\n"
      "tenant from=b to=a rate=25%\n"
      "port host=a interface=veth0\n"
      "port host=b listen=127.0.0.1:1 deliver=127.0.0.1:2\n");
  ASSERT_EQ(scenario.tenants.size(), 2U);
  EXPECT_EQ(scenario.tenants[0].rate, base::bits_per_second(500'000'000));
  EXPECT_EQ(scenario.tenants[0].off, base::Duration());
  EXPECT_EQ(scenario.tenants[0].protocol, TenantProtocol::kDctcp);
  EXPECT_DOUBLE_EQ(scenario.tenants[1].share, 0.25);
  ASSERT_EQ(scenario.ports.size(), 2U);
  EXPECT_EQ(scenario.ports[0].interface, "veth0");
  EXPECT_EQ(scenario.ports[1].deliver, "127.0.0.1:2");
  EXPECT_EQ(scenario.ports[1].place, "line 4");
}

TEST(Scenario, TopologyFileIsNamedButNotRead) {
  const Scenario scenario = parsed("topology file=net.txt\njob");
  EXPECT_EQ(scenario.topology.kind, TopologyKind::kFile);
  EXPECT_EQ(scenario.topology.file, "net.txt");
  EXPECT_TRUE(scenario.topology.file_text.empty());
}

TEST(Scenario, EveryFileOfTheRepositoryParses) {
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(SPILLWAY_TEST_DATA "/../scenarios")) {
    if (entry.path().extension() != ".scn") {
      continue;
    }
    ++files;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const base::Result<Scenario> scenario = parse_scenario(text.str());
    EXPECT_TRUE(scenario.ok()) << entry.path() << ": " << scenario.status().message();
  }
  EXPECT_GE(files, 9U);
}

constexpr const char* kText = R"(
topology leaf-spine hosts=4 leaves=2 spines=1 rate=1gbit uplink-rate=400mbit delay=10us
switch mode=spillway queue=128k
aggregate lease=100ms
tenant from=host1 to=host0 protocol=udp rate=70% on=20ms off=10ms start=1ms
tenant from=host3 to=host2 protocol=udp rate=100mbit on=7ms off=13ms
fault kind=loss link=leaf0->host0 share=1% from=2ms until=3ms
fault kind=gray link=leaf0->host1 share=1%
)";

TEST(Dilation, SlowsEverythingThatHasATimeInIt) {
  const Scenario base = parse_scenario(kText).value();
  const Scenario slow = dilated(base, 4);
  EXPECT_EQ(slow.topology.rate, base::bits_per_second(250'000'000));
  EXPECT_EQ(slow.topology.uplink_rate, base::bits_per_second(100'000'000));
  EXPECT_EQ(slow.topology.delay, base::microseconds(40));
  EXPECT_EQ(slow.tenants[0].share, base.tenants[0].share);
  EXPECT_EQ(slow.tenants[0].on, base::milliseconds(80));
  EXPECT_EQ(slow.tenants[0].off, base::milliseconds(40));
  EXPECT_EQ(slow.tenants[0].start.since_zero(), base::milliseconds(4));
  EXPECT_EQ(slow.tenants[1].rate, base::bits_per_second(25'000'000));
  EXPECT_EQ(slow.faults[0].from.since_zero(), base::milliseconds(8));
  EXPECT_EQ(slow.faults[0].until.since_zero(), base::milliseconds(12));
  EXPECT_EQ(slow.faults[1].until, transport::kNever);
  EXPECT_EQ(slow.faults[1].share, 0.01);
  EXPECT_EQ(slow.aggregations[0].config.lease_us, 4 * base.aggregations[0].config.lease_us);
}

TEST(Dilation, KeepsTheBytesOfQueuesAndOfPipes) {
  const Scenario base = parse_scenario(kText).value();
  const Scenario slow = dilated(base, 4);
  EXPECT_EQ(slow.port.queue_bytes, base.port.queue_bytes);
  EXPECT_EQ(slow.port.ecn_bytes, base.port.ecn_bytes);
  const auto pipe = [](const Scenario& scenario) {
    return scenario.topology.rate.count() * scenario.topology.delay.count();
  };
  EXPECT_EQ(pipe(slow), pipe(base));
  EXPECT_EQ(dilated(base, 1).topology.rate, base.topology.rate);
}

TEST(Dilation, ATopologyFromAFileCannotBe) {
  Scenario scenario = parse_scenario(kText).value();
  EXPECT_TRUE(can_be_dilated(scenario));
  scenario.topology.kind = TopologyKind::kFile;
  EXPECT_FALSE(can_be_dilated(scenario));
}

}  // namespace
}  // namespace spillway::scenario
