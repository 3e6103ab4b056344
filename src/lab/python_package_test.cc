// SPDX-License-Identifier: Apache-2.0
#include "lab/python_package.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace spillway::lab {
namespace {

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
  make("python/spillway/__init__.py");  // of a source tree around it
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

TEST_F(PythonPackageTest, WhatIsNotThereIsNotNamed) {
  EXPECT_TRUE(variables_for("bin/spillway").empty());
  EXPECT_TRUE(python_variables("", {}).empty());
}

}  // namespace
}  // namespace spillway::lab
