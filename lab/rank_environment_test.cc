// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "lab/rank_environment.h"

namespace spillway::lab {
namespace {

HostPlan two_hosts() {
  scenario::Scenario scenario;
  scenario.topology.hosts = 2;
  scenario.topology.rate = base::gigabits_per_second(1);
  return make_host_plan(scenario, {}).value();
}

std::string value_of(const std::vector<std::string>& variables, const std::string& key) {
  const auto found =
      std::find_if(variables.begin(), variables.end(),
                   [&key](const std::string& variable) { return variable.starts_with(key + "="); });
  return found == variables.end() ? "(unset)" : found->substr(key.size() + 1);
}

TEST(Environment, TellsARankWhereItIs) {
  const std::vector<std::string> variables = rank_variables(two_hosts(), 1, {.lab_id = "x"});
  EXPECT_EQ(value_of(variables, "RANK"), "1");
  EXPECT_EQ(value_of(variables, "WORLD_SIZE"), "2");
  EXPECT_EQ(value_of(variables, "LOCAL_RANK"), "0");
  EXPECT_EQ(value_of(variables, "LOCAL_WORLD_SIZE"), "1");
  EXPECT_EQ(value_of(variables, "GROUP_RANK"), "1");
  EXPECT_EQ(value_of(variables, "NODE_RANK"), "1");
  EXPECT_EQ(value_of(variables, "MASTER_ADDR"), "10.77.0.1");
  EXPECT_EQ(value_of(variables, "MASTER_PORT"), "29500");
  EXPECT_EQ(value_of(variables, "SPILLWAY_HOST_NAME"), "host1");
  EXPECT_EQ(value_of(variables, "SPILLWAY_PEERS"), "10.77.0.1:7077,10.77.0.2:7077");
  EXPECT_EQ(value_of(variables, "SPILLWAY_LISTEN"), "10.77.0.2:7077");
  EXPECT_EQ(value_of(variables, "SPILLWAY_LINK_RATE"), "1000000000");
  EXPECT_EQ(value_of(variables, "SPILLWAY_MTU"), "1500");
  EXPECT_EQ(value_of(variables, "SPILLWAY_TRIM_BYTES"), "256");
  EXPECT_EQ(value_of(variables, "SPILLWAY_LAB_ID"), "x");
  EXPECT_EQ(value_of(variables, "GLOO_SOCKET_IFNAME"), "eth0");
}

TEST(Environment, RanksOfAHostAreNumberedSideBySideAndDifferByPort) {
  const std::vector<std::string> variables = rank_variables(two_hosts(), 3, {.ranks_per_host = 2});
  EXPECT_EQ(value_of(variables, "RANK"), "3");
  EXPECT_EQ(value_of(variables, "WORLD_SIZE"), "4");
  EXPECT_EQ(value_of(variables, "LOCAL_RANK"), "1");
  EXPECT_EQ(value_of(variables, "LOCAL_WORLD_SIZE"), "2");
  EXPECT_EQ(value_of(variables, "NODE_RANK"), "1");
  EXPECT_EQ(value_of(variables, "SPILLWAY_HOST_NAME"), "host1");
  EXPECT_EQ(value_of(variables, "SPILLWAY_PEERS"),
            "10.77.0.1:7077,10.77.0.1:7078,10.77.0.2:7077,10.77.0.2:7078");
  EXPECT_EQ(value_of(variables, "SPILLWAY_LISTEN"), "10.77.0.2:7078");
}

TEST(Environment, WithoutNamespacesTheInterfaceIsLoopback) {
  const std::vector<std::string> variables =
      rank_variables(two_hosts(), 0, {.own_interface = false});
  EXPECT_EQ(value_of(variables, "GLOO_SOCKET_IFNAME"), "lo");
  EXPECT_EQ(value_of(variables, "NCCL_SOCKET_IFNAME"), "lo");
}

TEST(Environment, WhatIsAddedHasTheLastWord) {
  const std::vector<std::string> variables =
      rank_variables(two_hosts(), 0, {.additional = {"MASTER_PORT=1", "MINE=2"}});
  EXPECT_EQ(value_of(variables, "MASTER_PORT"), "1");
  EXPECT_EQ(value_of(variables, "MINE"), "2");
}

TEST(Environment, RanksHaveOneThreadUnlessSomebodySaidOtherwise) {
  EXPECT_EQ(thread_variables({"HOME=/", "OMP_NUM_THREADS_X=4"}),
            std::vector<std::string>{"OMP_NUM_THREADS=1"});
  EXPECT_TRUE(thread_variables({"OMP_NUM_THREADS=4"}).empty());
}

TEST(Environment, SetsEveryVariableOnce) {
  const std::vector<std::string> merged =
      with_variables({"PATH=/bin", "RANK=9", "RANKED=1"}, {"RANK=0", "NEW=a=b"});
  EXPECT_EQ(merged, (std::vector<std::string>{"PATH=/bin", "RANK=0", "RANKED=1", "NEW=a=b"}));
}

namespace fs = std::filesystem;
using Variables = std::vector<std::string>;

class PythonPackageTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { fs::remove_all(folder_); }

  void make(const std::string& name) {
    const fs::path path = fs::path(folder_) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "x";
  }
  Variables variables_for(const std::string& tool, const Variables& environment = {}) {
    return python_variables(fs::path(folder_) / tool, environment);
  }

  std::string folder_ = testing::TempDir() + "python_packageXXXXXX";
};

TEST_F(PythonPackageTest, AsBuiltItIsInTheSourceTree) {
  make("python/spillway/__init__.py");
  make("build/release/lib/libspillway.so.0");
  EXPECT_EQ(variables_for("build/release/bin/spillway"),
            (Variables{"PYTHONPATH=" + folder_ + "/python",
                       "SPILLWAY_LIBRARY=" + folder_ + "/build/release/lib/libspillway.so.0"}));
}

TEST_F(PythonPackageTest, AsInstalledItIsUnderThePrefix) {
  make("prefix/lib/python3/dist-packages/spillway/__init__.py");
  make("prefix/lib/aarch64-linux-gnu/libspillway.so.0");
  make("prefix/lib/other/libspillway.so.0");
  make("python/spillway/__init__.py");  // a source tree around it
  EXPECT_EQ(variables_for("prefix/bin/spillway"),
            (Variables{
                "PYTHONPATH=" + folder_ + "/prefix/lib/python3/dist-packages",
                "SPILLWAY_LIBRARY=" + folder_ + "/prefix/lib/aarch64-linux-gnu/libspillway.so.0"}));
}

TEST_F(PythonPackageTest, WhatTheUserSetStays) {
  make("python/spillway/__init__.py");
  make("build/release/lib/libspillway.so.0");
  EXPECT_EQ(variables_for("build/release/bin/spillway", {"PYTHONPATH=mine"}),
            (Variables{"SPILLWAY_LIBRARY=" + folder_ + "/build/release/lib/libspillway.so.0"}));
  EXPECT_TRUE(
      variables_for("build/release/bin/spillway", {"SPILLWAY_LIBRARY=", "PYTHONPATH="}).empty());
}

TEST_F(PythonPackageTest, WhatWatchesScriptsGoesFirst) {
  const auto variables = [this](const Variables& environment) {
    return watch_variables(fs::path(folder_) / "build/release/bin/spillway", environment);
  };
  make("python/spillway/__init__.py");
  EXPECT_TRUE(variables({}).empty());
  make("python/spillway/lab/sitecustomize.py");
  const std::string watch = "PYTHONPATH=" + folder_ + "/python/spillway/lab";
  EXPECT_EQ(variables({"HOME=/"}), Variables{watch});
  EXPECT_EQ(variables({"PYTHONPATH="}), Variables{watch});
  EXPECT_EQ(variables({"PYTHONPATH=/a:/b", "HOME=/"}), Variables{watch + ":/a:/b"});
  EXPECT_TRUE(watch_variables("", {}).empty());
}

TEST_F(PythonPackageTest, WhatIsNotThereIsNotNamed) {
  EXPECT_TRUE(variables_for("bin/spillway").empty());
  EXPECT_TRUE(python_variables("", {}).empty());
}

}  // namespace

}  // namespace spillway::lab
