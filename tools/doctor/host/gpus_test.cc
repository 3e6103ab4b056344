// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/host/gpus.h"

#include <gtest/gtest.h>

namespace spillway::doctor {
namespace {

gpu::DeviceInfo made_up_gpu() {
  gpu::DeviceInfo device;
  device.name = "Tester";
  device.major = 9;
  device.memory_bytes = std::size_t{80} << 30;
  device.shared_bytes = 227 << 10;
  return device;
}

TEST(Gpus, AHostWithoutOneIsFit) {
  const base::Status missing(base::StatusCode::kUnavailable, "there is no NVIDIA driver here");
  const Findings findings = check_gpus({.driver = missing, .cache_folder = "/c"});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::kOk);
  EXPECT_EQ(findings[0].finding, missing.message());
}

TEST(Gpus, OneThatCodesIsOk) {
  const Findings findings =
      check_gpus({.devices = {made_up_gpu()}, .compilers = {{}}, .cache_folder = "/c"});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::kOk);
  EXPECT_EQ(findings[0].finding, "0: Tester, compute capability 9.0, 80 GiB: codes gradients");
}

TEST(Gpus, OneWithoutACompilerIsAWarningWithARemedy) {
  const base::Status missing(base::StatusCode::kUnavailable, "NVRTC was not found");
  const Findings findings =
      check_gpus({.devices = {made_up_gpu()}, .compilers = {missing}, .cache_folder = "/c"});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_NE(findings[0].finding.find("NVRTC was not found"), std::string::npos);
  EXPECT_NE(findings[0].remedy.find("SPILLWAY_NVRTC"), std::string::npos);
}

TEST(Gpus, OneWithLittleSharedMemoryAndNoCacheIsToldSo) {
  gpu::DeviceInfo small = made_up_gpu();
  small.shared_bytes = 99 << 10;
  const Findings findings = check_gpus({.devices = {small}, .compilers = {{}}});
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].severity, Severity::kNote);
  EXPECT_EQ(findings[1].severity, Severity::kNote);
}

}  // namespace
}  // namespace spillway::doctor
