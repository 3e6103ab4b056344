// SPDX-License-Identifier: Apache-2.0
#include "observe/metrics_export.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>

#include "harness/slowdown.h"
#include "net/system_call.h"
#include "observe/observe_testing.h"

namespace spillway::runtime {
namespace {

const Identity kFirst{.rank = 4, .world = 8, .local_rank = 0};
const Identity kThird{.rank = 6, .world = 8, .local_rank = 2};

TEST(MetricsFile, IsThereAtOnceAndUpToDateAtTheEnd) {
  const TemporaryFolder folder;
  const std::string path = folder.file("spillway.prom");
  std::atomic<int> count{0};
  {
    const MetricsFile file(path, base::seconds(3600),
                           [&count] { return "count " + std::to_string(++count) + "\n"; });
    EXPECT_TRUE(harness::wait_until([&] { return !text_of(path).empty(); }));
    EXPECT_EQ(text_of(path), "count 1\n");
  }
  EXPECT_EQ(text_of(path), "count 2\n");
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"spillway.prom"}));
}

TEST(MetricsFile, IsWrittenEveryPeriod) {
  const TemporaryFolder folder;
  std::atomic<int> count{0};
  const MetricsFile file(folder.file("spillway.prom"), base::milliseconds(1),
                         [&count] { return std::to_string(++count); });
  EXPECT_TRUE(harness::wait_until([&] { return count.load() >= 4; }));
}

TEST(MetricsFile, OneThatCannotBeWrittenIsWarnedOfOnce) {
  const CapturedLog log;
  std::atomic<int> count{0};
  {
    const MetricsFile file("/nowhere/at/all.prom", base::milliseconds(1),
                           [&count] { return std::to_string(++count); });
    EXPECT_TRUE(harness::wait_until([&] { return count.load() >= 4; }));
  }
  ASSERT_EQ(log.lines().size(), 1U);
  EXPECT_TRUE(log.says("SPILLWAY_METRICS_FILE"));
}

TEST(MetricsFile, CanBeReadByItsCollectorAndFollowsNoLinkThatSomebodyLaidBeside) {
  const TemporaryFolder folder;
  const std::string path = folder.file("spillway.prom");
  const std::string victim = folder.file("victim");
  std::ofstream(victim) << "kept";
  for (const std::string& name : {path + ".part", fmt::format("{}.{}.tmp", path, ::getpid())}) {
    ASSERT_EQ(::symlink(victim.c_str(), name.c_str()), 0);
  }
  {
    const MetricsFile file(path, base::seconds(3600), [] { return "count 1\n"; });
  }
  EXPECT_EQ(text_of(victim), "kept");
  struct stat written {};
  ASSERT_EQ(::stat(path.c_str(), &written), 0);
  EXPECT_EQ(written.st_mode & 07777U, 0644U);
}

TEST(MetricsConfig, WithoutVariablesThereIsNothing) {
  const MetricsConfig config = *metrics_config({}, kFirst);
  EXPECT_EQ(config.file, "");
  EXPECT_EQ(config.period, base::seconds(10));
  EXPECT_FALSE(config.listen.has_value());
}

TEST(MetricsConfig, RanksOfAMachineDoNotCollide) {
  const auto file = [](const std::string& pattern, const Identity& identity) {
    return metrics_config({{"SPILLWAY_METRICS_FILE", pattern}}, identity)->file;
  };
  EXPECT_EQ(file("/x/spillway.prom", kFirst), "/x/spillway.prom");
  EXPECT_EQ(file("/x/spillway.prom", kThird), "/x/spillway.2.prom");
  EXPECT_EQ(file("/x.d/spillway", kThird), "/x.d/spillway.2");
  EXPECT_EQ(file("/x/%r.prom", kThird), "/x/6.prom");
  const auto listen = [](const base::Environment& environment, const Identity& identity) {
    return metrics_config(environment, identity)->listen->to_string();
  };
  EXPECT_EQ(listen({{"SPILLWAY_METRICS_PORT", "9400"}}, kFirst), "127.0.0.1:9400");
  EXPECT_EQ(listen({{"SPILLWAY_METRICS_PORT", "9400"}}, kThird), "127.0.0.1:9402");
  EXPECT_EQ(
      listen({{"SPILLWAY_METRICS_PORT", "1"}, {"SPILLWAY_METRICS_LISTEN", "[::1]:9500"}}, kThird),
      "[::1]:9502");
  EXPECT_EQ(listen({{"SPILLWAY_METRICS_LISTEN", "127.0.0.1:0"}}, kThird), "127.0.0.1:0");
}

TEST(MetricsConfig, VariablesThatMakeNoSenseAreRefused) {
  const auto message = [](const char* name, const char* value) {
    return metrics_config({{name, value}}, kThird).status().message();
  };
  EXPECT_EQ(message("SPILLWAY_METRICS_PORT", "http"),
            "SPILLWAY_METRICS_PORT is 'http': it must be a whole number from 1 to 65535");
  EXPECT_EQ(message("SPILLWAY_METRICS_SECONDS", "0"),
            "SPILLWAY_METRICS_SECONDS is '0': it must be a whole number from 1 to 86400");
  for (const char* listen : {"somewhere", "300.0.0.1:7"}) {
    EXPECT_TRUE(message("SPILLWAY_METRICS_LISTEN", listen)
                    .starts_with("SPILLWAY_METRICS_LISTEN is '" + std::string(listen) +
                                 "': it must be an address and a port"));
  }
}

TEST(MetricsConfig, APortBeyondTheLastIsWarnedOf) {
  const CapturedLog log;
  EXPECT_FALSE(metrics_config({{"SPILLWAY_METRICS_PORT", "65535"}}, kThird)->listen.has_value());
  EXPECT_TRUE(log.says("local rank 2"));
}

std::string ask(const net::SocketAddress& server) {
  const net::UniqueFd fd(::socket(server.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), server.data(), server.size()), 0);
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
  std::string answer;
  std::array<char, 1024> part{};
  for (ssize_t got = 0; (got = ::recv(fd.get(), part.data(), part.size(), 0)) > 0;) {
    answer.append(part.data(), static_cast<std::size_t>(got));
  }
  return answer;
}

TEST(MetricsExport, AnswersAndWrites) {
  const TemporaryFolder folder;
  const std::string path = folder.file("spillway.prom");
  {
    const MetricsExport metrics({.file = path,
                                 .period = base::seconds(3600),
                                 .listen = net::SocketAddress::parse("127.0.0.1:0").value()},
                                {.text = [] { return "some 1\n"; }});
    ASSERT_TRUE(metrics.address().has_value());
    EXPECT_TRUE(ask(*metrics.address()).ends_with("\r\n\r\nsome 1\n"));
  }
  EXPECT_EQ(text_of(path), "some 1\n");
}

TEST(MetricsExport, AllOfAProcessStandTogetherInOnePlace) {
  const TemporaryFolder folder;
  const MetricsConfig config{.file = folder.file("spillway.prom"),
                             .period = base::seconds(3600),
                             .listen = net::SocketAddress::parse("127.0.0.1:0").value()};
  const auto of = [](const char* name) {
    return MetricsSource{.communicator = [name] {
      CommunicatorMetrics metrics;
      metrics.communicator = name;
      return metrics;
    }};
  };
  {
    const MetricsExport first(config, of("first"));
    const MetricsExport job(config, {.text = [] { return "job 1\n"; }});
    std::string text;
    {
      const MetricsExport second(config, of("second"));
      EXPECT_EQ(second.address()->port(), first.address()->port());
      text = ask(*first.address());
    }
    const std::string type = "# TYPE spillway_communicator_memory_bytes";
    EXPECT_EQ(text.find(type), text.rfind(type));
    for (const char* part : {"communicator=\"first\"", "communicator=\"second\"", "job 1\n"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part;
    }
    EXPECT_EQ(ask(*first.address()).find("\"second\""), std::string::npos);
  }
  EXPECT_NE(text_of(config.file).find("communicator=\"first\""), std::string::npos);
}

TEST(MetricsExport, APortThatIsTakenIsWarnedOf) {
  const CapturedLog log;
  const auto any = net::SocketAddress::parse("127.0.0.1:0").value();
  const MetricsSource source{.text = [] { return std::string(); }};
  const MetricsExport first({.period = base::seconds(1), .listen = any}, source);
  const MetricsExport second({.period = base::seconds(1), .listen = first.address()}, source);
  EXPECT_FALSE(second.address().has_value());
  EXPECT_TRUE(log.says("choose another port"));
}

}  // namespace
}  // namespace spillway::runtime
