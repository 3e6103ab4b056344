// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "harness/slowdown.h"
#include "net/system_call.h"
#include "observe/metrics.h"
#include "observe/observe_testing.h"

namespace spillway::observe {

namespace {

// Reads the text as a scraper would, and checks the format: HELP and TYPE before a name's samples,
// which are adjacent, and no sample twice.
class ParsedMetrics {
 public:
  explicit ParsedMetrics(const std::string& text) {
    EXPECT_TRUE(text.ends_with('\n'));
    for (const std::string& line : lines_of(text)) {
      std::smatch match;
      if (std::regex_match(line, match, std::regex(R"(# HELP (\w+) .+\.)"))) {
        family_ = match[1];
        EXPECT_TRUE(families_.insert(family_).second) << family_ << " comes twice";
      } else if (std::regex_match(line, match,
                                  std::regex(R"(# TYPE (\w+) (counter|gauge|histogram))"))) {
        EXPECT_EQ(match[1], family_);
        types_[family_] = match[2];
      } else {
        add_sample(line);
      }
    }
  }

  double at(const std::string& series) const {
    const auto found = samples_.find("spillway_communicator_" + series);
    EXPECT_NE(found, samples_.end()) << series;
    return found == samples_.end() ? -1.0 : found->second;
  }
  bool has(const std::string& series) const {
    return samples_.count("spillway_communicator_" + series) != 0;
  }
  const std::map<std::string, std::string>& types() const { return types_; }

 private:
  void add_sample(const std::string& line) {
    static const std::regex kSample(
        R"re(((\w+)\{(?:\w+="(?:[^"\\\n]|\\["\\n])*",?)+\}) (\d+(?:\.\d+)?(?:e-?\d+)?))re");
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, kSample)) << line;
    const std::string name = match[2];
    const std::string end = name.substr(std::min(family_.size(), name.size()));
    EXPECT_TRUE(name.starts_with(family_)) << line;
    EXPECT_TRUE(types_[family_] == "histogram"
                    ? end == "_bucket" || end == "_sum" || end == "_count"
                    : end.empty())
        << line;
    EXPECT_EQ(types_[family_] == "counter", name.ends_with("_total")) << line;
    EXPECT_TRUE(samples_.emplace(match[1], std::stod(match[3])).second) << line;
  }

  std::string family_;
  std::set<std::string> families_;
  std::map<std::string, std::string> types_;
  std::map<std::string, double> samples_;
};

CommunicatorMetrics small() {
  CommunicatorMetrics metrics;
  metrics.communicator = "world";
  metrics.rank = 3;
  OperationRecord record{.state = OperationState::kDone,
                         .kind = "all_reduce",
                         .queued = base::Instant(base::seconds(1)),
                         .finished = base::Instant(base::milliseconds(1003)),
                         .packets_expected = 10,
                         .packets_whole = 7,
                         .packets_trimmed = 2,
                         .packets_missing = 1,
                         .packets_duplicate = 4,
                         .packets_retransmitted = 5,
                         .wire_bytes_sent = 9000,
                         .wire_bytes_received = 8000};
  metrics.add(record);
  record.state = OperationState::kFailed;
  record.finished = base::Instant(base::seconds(101));
  metrics.add(record);
  metrics.operations_in_flight = 2;
  metrics.user_bytes_in = 4096;
  metrics.user_bytes_out = 2048;
  metrics.strangers = 11;
  metrics.bad_packets = 12;
  metrics.forged_refusals = 13;
  metrics.ignored_icmp = 14;
  metrics.memory_bytes = 1 << 20;
  metrics.peers = {{.rank = 1, .lost_packets = 2, .trimmed_packets = 3, .late_operations = 1}};
  return metrics;
}

TEST(MetricsText, SaysWhatWasCounted) {
  const CommunicatorMetrics metrics = small();
  const ParsedMetrics parsed(metrics_text({&metrics, 1}));
  const std::string who = R"(communicator="world",rank="3")";
  const auto at = [&](const std::string& name, const std::string& more = "") {
    return parsed.at(name + "{" + who + more + "}");
  };
  EXPECT_EQ(at("operations_total", R"(,kind="all_reduce",outcome="done")"), 1);
  EXPECT_EQ(at("operations_total", R"(,kind="all_reduce",outcome="failed")"), 1);
  EXPECT_EQ(at("operations_in_flight"), 2);
  EXPECT_EQ(at("user_bytes_total", R"(,direction="in")"), 4096);
  EXPECT_EQ(at("user_bytes_total", R"(,direction="out")"), 2048);
  EXPECT_EQ(at("disbelieved_total", R"(,reason="stranger")"), 11);
  EXPECT_EQ(at("disbelieved_total", R"(,reason="bad")"), 12);
  EXPECT_EQ(at("disbelieved_total", R"(,reason="forged_refusal")"), 13);
  EXPECT_EQ(at("disbelieved_total", R"(,reason="icmp")"), 14);
  EXPECT_EQ(at("sent_bytes_total"), 18'000);
  EXPECT_EQ(at("received_bytes_total"), 16'000);
  EXPECT_EQ(at("packets_total", R"(,outcome="whole")"), 14);
  EXPECT_EQ(at("packets_total", R"(,outcome="trimmed")"), 4);
  EXPECT_EQ(at("packets_total", R"(,outcome="missing")"), 2);
  EXPECT_EQ(at("duplicate_packets_total"), 8);
  EXPECT_EQ(at("retransmitted_packets_total"), 10);
  EXPECT_EQ(at("memory_bytes"), 1 << 20);
  EXPECT_EQ(at("peer_lost_packets_total", R"(,peer="1")"), 2);
  EXPECT_EQ(at("peer_trimmed_packets_total", R"(,peer="1")"), 3);
  EXPECT_EQ(at("peer_late_operations_total", R"(,peer="1")"), 1);
  EXPECT_EQ(at("operation_duration_seconds_bucket", R"(,le="0.0025")"), 0);
  EXPECT_EQ(at("operation_duration_seconds_bucket", R"(,le="0.005")"), 1);
  EXPECT_EQ(at("operation_duration_seconds_bucket", R"(,le="60")"), 1);
  EXPECT_EQ(at("operation_duration_seconds_bucket", R"(,le="+Inf")"), 2);
  EXPECT_EQ(at("operation_duration_seconds_count"), 2);
  EXPECT_DOUBLE_EQ(at("operation_duration_seconds_sum"), 100.003);
}

TEST(MetricsText, IsExactlyThis) {
  const CommunicatorMetrics metrics = small();
  const std::string text = metrics_text({&metrics, 1});
  EXPECT_TRUE(text.starts_with(
      "# HELP spillway_communicator_operations_total Operations that ended, by kind and outcome.\n"
      "# TYPE spillway_communicator_operations_total counter\n"
      "spillway_communicator_operations_total{communicator=\"world\",rank=\"3\","
      "kind=\"all_reduce\",outcome=\"done\"} 1\n"
      "spillway_communicator_operations_total{communicator=\"world\",rank=\"3\","
      "kind=\"all_reduce\",outcome=\"failed\"} 1\n"
      "# HELP spillway_communicator_operations_in_flight Operations that have not ended.\n"
      "# TYPE spillway_communicator_operations_in_flight gauge\n"
      "spillway_communicator_operations_in_flight{communicator=\"world\",rank=\"3\"} 2\n"))
      << text;
}

TEST(MetricsText, SeveralCommunicatorsShareTheirNames) {
  std::vector<CommunicatorMetrics> two = {small(), small()};
  two[1].communicator = "tensor";
  const ParsedMetrics parsed(metrics_text(two));
  EXPECT_EQ(parsed.at(R"(operations_in_flight{communicator="world",rank="3"})"), 2);
  EXPECT_EQ(parsed.at(R"(operations_in_flight{communicator="tensor",rank="3"})"), 2);
}

TEST(MetricsText, LabelsAreEscaped) {
  EXPECT_EQ(escaped_label("a\"b\\c\nd\xff"), R"(a\"b\\c\nd?)");
  CommunicatorMetrics metrics;
  metrics.communicator = "a\"b\\c\nd";
  const ParsedMetrics parsed(metrics_text({&metrics, 1}));
  EXPECT_TRUE(parsed.has(R"(memory_bytes{communicator="a\"b\\c\nd",rank="0"})"));
}

TEST(MetricsText, ManyPeersBecomeTheWorstAndTheRest) {
  CommunicatorMetrics metrics;
  for (std::uint32_t rank = 0; rank < 100; ++rank) {
    metrics.peers.push_back({.rank = rank, .lost_packets = rank});
  }
  const ParsedMetrics parsed(metrics_text({&metrics, 1}));
  const auto series = [](const std::string& peer) {
    return R"(peer_lost_packets_total{communicator="world",rank="0",peer=")" + peer + "\"}";
  };
  EXPECT_EQ(parsed.at(series("36")), 36);
  EXPECT_EQ(parsed.at(series("99")), 99);
  EXPECT_FALSE(parsed.has(series("35")));
  EXPECT_EQ(parsed.at(series("other")), 35 * 36 / 2);
}

TEST(DurationHistogram, BucketsHoldTheirUpperEnds) {
  DurationHistogram histogram;
  histogram.add(base::microseconds(100));
  histogram.add(base::nanoseconds(100'001));
  histogram.add(base::seconds(61));
  EXPECT_EQ(histogram.count_up_to(0), 1U);
  EXPECT_EQ(histogram.count_up_to(1), 2U);
  EXPECT_EQ(histogram.count_up_to(DurationHistogram::kBuckets.size() - 1), 2U);
  EXPECT_EQ(histogram.count(), 3U);
  EXPECT_TRUE(
      std::is_sorted(DurationHistogram::kBuckets.begin(), DurationHistogram::kBuckets.end()));
}

// ------------------------------------------------------------------ export

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
  EXPECT_EQ(listen({{"SPILLWAY_METRICS_LISTEN", "9400"}}, kFirst), "127.0.0.1:9400");
  EXPECT_EQ(listen({{"SPILLWAY_METRICS_LISTEN", "9400"}}, kThird), "127.0.0.1:9402");
  EXPECT_EQ(listen({{"SPILLWAY_METRICS_LISTEN", "[::1]:9500"}}, kThird), "[::1]:9502");
  EXPECT_EQ(listen({{"SPILLWAY_METRICS_LISTEN", "127.0.0.1:0"}}, kThird), "127.0.0.1:0");
}

TEST(MetricsConfig, VariablesThatMakeNoSenseAreRefused) {
  for (const char* listen : {"somewhere", "http", "0", "65536", "300.0.0.1:7"}) {
    const base::Status refused =
        metrics_config({{"SPILLWAY_METRICS_LISTEN", listen}}, kThird).status();
    EXPECT_TRUE(refused.message().starts_with("SPILLWAY_METRICS_LISTEN is '" + std::string(listen) +
                                              "': it must be a port, or an address and a port"));
  }
}

TEST(MetricsConfig, APortBeyondTheLastIsWarnedOf) {
  const CapturedLog log;
  EXPECT_FALSE(metrics_config({{"SPILLWAY_METRICS_LISTEN", "65535"}}, kThird)->listen.has_value());
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

}  // namespace spillway::observe
