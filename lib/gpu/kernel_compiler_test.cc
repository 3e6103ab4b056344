// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernel_compiler.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace spillway::gpu {
namespace {

class KernelCompiler : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "spillway-kernels-" + std::to_string(::getpid());
    environment_.set("SPILLWAY_CACHE_DIR", folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  base::Environment environment_;
};

TEST_F(KernelCompiler, SaysWhatIsMissing) {
  environment_.set("SPILLWAY_NVRTC", "/nowhere/libnvrtc.so");
  const auto code = compile_kernels(9, 0, environment_);
  ASSERT_FALSE(code.ok());
  EXPECT_EQ(code.status().code(), base::StatusCode::kUnavailable);
  EXPECT_NE(code.status().message().find("/nowhere/libnvrtc.so"), std::string::npos);
  EXPECT_NE(code.status().message().find("the CPU codes"), std::string::npos);
}

TEST_F(KernelCompiler, CompilesOnceAndReadsAfterwards) {
  const auto first = compile_kernels(9, 0, environment_);
  if (!first.ok()) {
    GTEST_SKIP() << first.status().message();
  }
  EXPECT_EQ(first->origin, CodeOrigin::kCompiler);
  const auto second = compile_kernels(9, 0, environment_);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->origin, CodeOrigin::kCache);
  EXPECT_EQ(second->image, first->image);
}

TEST_F(KernelCompiler, TrustsOnlyMachineCodeThatNobodyElseMayWrite) {
  const KernelCache cache(folder_);
  const std::string path = folder_ + "/kept";
  EXPECT_FALSE(cache.read("kept"));
  const std::string code =
      "\x7F"
      "ELF and more";
  cache.keep("kept", {code.begin(), code.end()});
  EXPECT_TRUE(cache.read("kept"));
  ::chmod(path.c_str(), 0620);
  EXPECT_FALSE(cache.read("kept"));
  ::chmod(path.c_str(), 0600);
  std::filesystem::rename(path, folder_ + "/elsewhere");
  ASSERT_EQ(::symlink("elsewhere", path.c_str()), 0);
  EXPECT_FALSE(cache.read("kept")) << "a link is followed";
  const std::string text = "text";
  cache.keep("kept", {text.begin(), text.end()});
  EXPECT_FALSE(cache.read("kept"));
}

TEST_F(KernelCompiler, UsesNoFolderThatOthersMayWriteTo) {
  std::filesystem::create_directory(folder_);
  ::chmod(folder_.c_str(), 0777);
  const KernelCache cache(folder_);
  const std::string code =
      "\x7F"
      "ELF and more";
  std::ofstream(folder_ + "/planted") << code;
  ::chmod((folder_ + "/planted").c_str(), 0600);
  EXPECT_FALSE(cache.read("planted"));
  cache.keep("kept", {code.begin(), code.end()});
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/kept"));
}

TEST_F(KernelCompiler, RefusesAGpuThatTheCompilerDoesNotKnow) {
  const auto code = compile_kernels(99, 9, environment_);
  ASSERT_FALSE(code.ok());
  EXPECT_EQ(code.status().code(), base::StatusCode::kUnavailable);
}

TEST_F(KernelCompiler, CachesWhereTheUserSays) {
  EXPECT_EQ(cache_folder({{"SPILLWAY_CACHE_DIR", "/a"}, {"XDG_CACHE_HOME", "/b"}}), "/a");
  EXPECT_EQ(cache_folder({{"XDG_CACHE_HOME", "/b"}, {"HOME", "/c"}}), "/b/spillway");
  EXPECT_EQ(cache_folder({{"HOME", "/c"}}), "/c/.cache/spillway");
  EXPECT_EQ(cache_folder({}), "");
}

}  // namespace
}  // namespace spillway::gpu
