// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/peer/listener.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>

#include "base/clock.h"
#include "harness/slowdown.h"
#include "net/system_call.h"
#include "tools/doctor/peer/peer_checks.h"

namespace spillway::doctor {
namespace {

// A listener on a thread of its own.
class RunningListener {
 public:
  explicit RunningListener(const std::string& address)
      : listener_(open(address)), stop_(::eventfd(0, EFD_CLOEXEC)), thread_([this] {
          listener_.run(stop_.get(), base::MonotonicClock().now() + base::seconds(3600));
        }) {}
  ~RunningListener() { finish(); }

  net::SocketAddress address() const { return listener_.addresses().front(); }
  const ResponderCounters& finish() {
    if (thread_.joinable()) {
      const std::uint64_t one = 1;
      EXPECT_EQ(::write(stop_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
      thread_.join();
    }
    return listener_.counters();
  }

 private:
  static Listener open(const std::string& text) {
    const net::SocketAddress address = net::SocketAddress::parse(text).value();
    return Listener::open({&address, 1}).value();
  }

  Listener listener_;
  net::UniqueFd stop_;
  std::thread thread_;
};

constexpr TrimOptions kShortBurst = {.rate = base::bits_per_second(50'000'000),
                                     .length = base::milliseconds(50)};

bool is_fit(const Findings& findings) {
  return std::ranges::all_of(
      findings, [](const Finding& finding) { return finding.severity <= Severity::kNote; });
}

// Repeats the checks on a finding: a listener that waits for a processor answers as late as one
// behind a bad path.
Findings check_patiently(const net::SocketAddress& address) {
  harness::Limit limit;
  Findings findings = check_path_to(address, kShortBurst, 256);
  while (!is_fit(findings) && !limit.is_over()) {
    findings = check_path_to(address, kShortBurst, 256);
  }
  return findings;
}

void check_over(const std::string& address) {
  RunningListener listener(address);
  const Findings findings = check_patiently(listener.address());
  std::set<std::string> checks;
  for (const Finding& finding : findings) {
    checks.insert(finding.check);
    EXPECT_LE(finding.severity, Severity::kNote) << finding.check << ": " << finding.finding;
  }
  EXPECT_EQ(checks,
            (std::set<std::string>{"round-trip", "clock-offset", "path-mtu", "dscp-there",
                                   "dscp-back", "ecn-there", "ecn-back", "trim", "stale-lengths"}));
  const ResponderCounters& counters = listener.finish();
  EXPECT_GT(counters.counted, 10U);
  EXPECT_EQ(counters.garbage, 0U);
}

TEST(Listener, FindsLoopbackFitOverIpv4) {
  check_over("127.0.0.1:0");
}

TEST(Listener, FindsLoopbackFitOverIpv6) {
  if (!ProbeSocket::open(net::SocketAddress::parse("[::1]:0").value()).ok()) {
    GTEST_SKIP() << "this host has no IPv6";
  }
  check_over("[::1]:0");
}

TEST(Listener, IsMissedWhereThereIsNone) {
  base::Result<ProbeSocket> taken =
      ProbeSocket::open(net::SocketAddress::parse("127.0.0.1:0").value());
  ASSERT_TRUE(taken.ok());
  const net::SocketAddress silent = taken->local();  // open, but nothing answers
  const Findings findings = check_path_to(silent, kShortBurst, std::nullopt);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].check, "round-trip");
  EXPECT_EQ(findings[0].severity, Severity::kError);
}

}  // namespace
}  // namespace spillway::doctor
