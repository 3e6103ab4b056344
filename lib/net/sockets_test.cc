// SPDX-License-Identifier: Apache-2.0
//
// Tests of addresses and of the helper thread and queue of system_call.h.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "harness/slowdown.h"
#include "net/address.h"
#include "net/system_call.h"

namespace spillway::net {

namespace {

// ------------------------------------------------------------------ addresses

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

// ------------------------------------------------------------------ threads

// True if the kernel reports the thread of that name as waiting in a system call.
bool sleeps(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string number;
    std::string command;
    std::string state;
    file >> number >> command >> state;
    if (command == "(" + name + ")") {
      return state == "S";
    }
  }
  return false;
}

TEST(HelperThread, DoesOneJobAfterTheOtherOnAThreadOfItsOwn) {
  const auto helper = HelperThread::make("test", "is tested").value();
  std::vector<int> done;  // no lock: wait() hands it back
  std::thread::id where;
  for (int i = 0; i < 1000; ++i) {
    helper->start([&, i] {
      done.push_back(i);
      where = std::this_thread::get_id();
    });
    helper->wait();
    ASSERT_EQ(done.size(), static_cast<std::size_t>(i) + 1);
    ASSERT_EQ(done.back(), i);
  }
  EXPECT_NE(where, std::this_thread::get_id());
  EXPECT_FALSE(helper->is_busy());
}

TEST(HelperThread, WakesUpForAJobThatComesLate) {
  const auto helper = HelperThread::make("test", "is tested").value();
  ASSERT_TRUE(harness::wait_until([] { return sleeps("test"); }));
  bool is_done = false;
  helper->start([&] { is_done = true; });
  helper->wait();
  EXPECT_TRUE(is_done);
}

TEST(HelperThread, EndsAfterItsJob) {
  bool is_done = false;
  {
    const auto helper = HelperThread::make("test", "is tested").value();
    helper->start([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a slow job
      is_done = true;
    });
  }
  EXPECT_TRUE(is_done);
}

}  // namespace

}  // namespace spillway::net
