// SPDX-License-Identifier: Apache-2.0
#include "net/helper_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "harness/slowdown.h"

namespace spillway::net {
namespace {

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
