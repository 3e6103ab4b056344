// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tools/doctor/host_checks.h"

namespace spillway::doctor {

// The host checks, run on made-up hosts.

namespace {

namespace fs = std::filesystem;

TEST(Finding, TheWorstDecides) {
  EXPECT_EQ(worst_of({}), Severity::kOk);
  Findings findings = {{"a", Severity::kOk, "fine"}, {"b", Severity::kWarning, "hm", "do this"}};
  EXPECT_EQ(worst_of(findings), Severity::kWarning);
  append(findings, {{"c", Severity::kError, "bad", "do that"}, {"d", Severity::kNote, "so", "x"}});
  EXPECT_EQ(worst_of(findings), Severity::kError);
  EXPECT_EQ(count_of(findings, Severity::kError), 1U);
  EXPECT_EQ(findings.size(), 4U);
}

// A temporary folder that stands in for "/".
class FakeHost : public testing::Test {
 protected:
  FakeHost() {
    std::string pattern = (fs::temp_directory_path() / "doctor-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~FakeHost() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  Finding kernel(const std::string& release) {
    write("proc/sys/kernel/osrelease", release);
    return check_kernel(files());
  }
  Finding clock_source(const std::string& name) {
    write("sys/devices/system/clocksource/clocksource0/current_clocksource", name);
    return check_clock_source(files());
  }
  HostFiles files() const { return HostFiles(root_); }

  fs::path root_;
};

TEST_F(FakeHost, OldKernelsAreNoticed) {
  EXPECT_EQ(kernel("6.1.0-18-amd64").severity, Severity::kOk);
  EXPECT_EQ(kernel("5.15").severity, Severity::kOk);
  EXPECT_EQ(kernel("10.0-rc1+").severity, Severity::kOk);
  EXPECT_EQ(kernel("5.14.99").severity, Severity::kNote);
  EXPECT_EQ(kernel("4.18.0-553.el8").severity, Severity::kWarning);
  EXPECT_EQ(kernel("3.10").severity, Severity::kWarning);
  for (const char* odd : {"", "six", "6", "6.", ".1", "6.x"}) {
    EXPECT_EQ(kernel(odd).severity, Severity::kNote) << odd;
  }
}

TEST_F(FakeHost, ClocksOutsideTheProcessorAreSlow) {
  EXPECT_EQ(clock_source("tsc").severity, Severity::kOk);
  EXPECT_EQ(clock_source("arch_sys_counter").severity, Severity::kOk);
  EXPECT_EQ(clock_source("hpet").severity, Severity::kWarning);
  EXPECT_EQ(clock_source("acpi_pm").severity, Severity::kWarning);
  EXPECT_EQ(clock_source("sundial").severity, Severity::kNote);
}

TEST_F(FakeHost, CapabilitiesAreReadFromTheStatus) {
  EXPECT_EQ(effective_capabilities(files()), 0U);
  write("proc/self/status", "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000003000\n");
  const CapabilitySet set = effective_capabilities(files());
  EXPECT_TRUE(has_net_admin(set));
  EXPECT_TRUE(has_net_raw(set));
  EXPECT_FALSE(has_bpf(set));
  EXPECT_TRUE(has_bpf(1ULL << 39));
  EXPECT_TRUE(has_bpf(1ULL << 21));  // CAP_SYS_ADMIN
  EXPECT_FALSE(parse_effective_capabilities("CapEff:"));
  EXPECT_FALSE(parse_effective_capabilities("CapEff:\tzz"));
  EXPECT_EQ(worst_of(check_capabilities(set)), Severity::kNote);
  EXPECT_EQ(worst_of(check_capabilities(~0ULL)), Severity::kOk);
}

TEST_F(FakeHost, WhatForbidsUserNamespacesIsNamed) {
  EXPECT_EQ(check_user_namespaces(files()).severity, Severity::kOk);
  write("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1");
  EXPECT_NE(check_user_namespaces(files()).remedy.find("apparmor"), std::string::npos);
  write("proc/sys/user/max_user_namespaces", "0");
  const Finding finding = check_user_namespaces(files());
  EXPECT_EQ(finding.severity, Severity::kNote);
  EXPECT_NE(finding.remedy.find("user.max_user_namespaces"), std::string::npos);
}

TEST_F(FakeHost, BpffsIsFoundWhereverItIsMounted) {
  write("proc/mounts", "proc /proc proc rw 0 0\nbpf-like /sys/fs/bpf tmpfs rw 0 0");
  EXPECT_EQ(check_bpffs(files()).severity, Severity::kNote);
  write("proc/mounts", "proc /proc proc rw 0 0\nnone /run/bpf bpf rw 0 0");
  EXPECT_EQ(check_bpffs(files()).finding, "mounted at /run/bpf");
  EXPECT_EQ(check_btf(files()).severity, Severity::kNote);
  write("sys/kernel/btf/vmlinux", "x");
  EXPECT_EQ(check_btf(files()).severity, Severity::kOk);
}

TEST_F(FakeHost, SocketLimitsMatterToThoseWhoMayNotExceedThem) {
  write("proc/sys/net/core/rmem_max", "212992");
  write("proc/sys/net/core/wmem_max", "4194304");
  const Findings ranks = check_socket_limits(files(), 4194304, false);
  EXPECT_EQ(ranks[0].severity, Severity::kWarning);
  EXPECT_EQ(ranks[0].remedy, "sysctl -w net.core.rmem_max=4194304");
  EXPECT_EQ(ranks[1].severity, Severity::kOk);
  EXPECT_EQ(worst_of(check_socket_limits(files(), 4194304, true)), Severity::kNote);
  EXPECT_EQ(wanted_socket_buffer(), 4194304U);
}

TEST_F(FakeHost, ToolsAreLookedForInAllFolders) {
  write("empty/unrelated", "x");
  for (const char* tool : {"ip", "tc"}) {
    write(std::string("bin/") + tool, "#!/bin/sh");
    fs::permissions(root_ / "bin" / tool, fs::perms::owner_all);
  }
  const std::string both = (root_ / "empty").string() + "::" + (root_ / "bin").string();
  EXPECT_EQ(check_iproute2(both).severity, Severity::kOk);
  EXPECT_EQ(check_iproute2((root_ / "empty").string()).severity, Severity::kNote);
  EXPECT_EQ(check_iproute2("").severity, Severity::kNote);
}

TEST(Interfaces, ShortFramesAndMergedPacketsAreNoticed) {
  const std::vector<InterfaceState> interfaces = {{.name = "eth0", .mtu = 9000},
                                                  {.name = "eth1", .mtu = 1500},
                                                  {.name = "eth2", .mtu = 1279, .lro = true}};
  const Findings findings = check_interfaces(interfaces);
  ASSERT_EQ(findings.size(), 6U);
  EXPECT_EQ(worst_of(std::span(findings).first(2)), Severity::kOk);
  EXPECT_EQ(findings[2].severity, Severity::kNote);
  EXPECT_EQ(findings[3].severity, Severity::kOk);
  EXPECT_EQ(findings[4].severity, Severity::kWarning);
  EXPECT_EQ(findings[5].severity, Severity::kWarning);
  EXPECT_EQ(findings[5].remedy, "ethtool -K eth2 lro off");
  EXPECT_EQ(worst_of(check_interfaces({})), Severity::kNote);
}

TEST(OffloadSupport, IsNoticedWhereItLacks) {
  const Findings findings = check_offloads({.gso = false, .gro = true, .batching = true});
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_EQ(findings[0].remedy, "use Linux 4.18 or newer");
  EXPECT_EQ(findings[1].severity, Severity::kOk);
  EXPECT_EQ(findings[2].severity, Severity::kOk);
}

TEST(ClockSource, CoarseClocksAreNoticed) {
  EXPECT_EQ(check_clock({base::nanoseconds(1), base::microseconds(3)}).severity, Severity::kOk);
  EXPECT_EQ(check_clock({base::milliseconds(4), base::nanoseconds(20)}).severity,
            Severity::kWarning);
}

TEST(LoopbackMarks, CrossLoopbackOnThisHost) {
  const LoopbackTrial trial = try_loopback(false);
  EXPECT_TRUE(trial.opened);
  EXPECT_EQ(trial.kept, trial.sent);
  EXPECT_GE(trial.sent, 13U);
  EXPECT_TRUE(trial.stamped);
  EXPECT_EQ(check_loopback_marks({.opened = true, .sent = 13, .kept = 12}, true).severity,
            Severity::kWarning);
  EXPECT_EQ(check_loopback_marks({}, true).severity, Severity::kNote);
  EXPECT_EQ(check_receive_stamps({.opened = true}).severity, Severity::kWarning);
}

TEST(LocalChecks, EveryFindingThatIsNotOkSaysWhatToDo) {
  for (const Finding& finding : check_this_host()) {
    EXPECT_EQ(finding.remedy.empty(), finding.severity == Severity::kOk) << finding.check;
    EXPECT_FALSE(finding.finding.empty()) << finding.check;
  }
}

}  // namespace

namespace {

gpu::DeviceInfo test_gpu() {
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
      check_gpus({.devices = {test_gpu()}, .compilers = {{}}, .cache_folder = "/c"});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::kOk);
  EXPECT_EQ(findings[0].finding, "0: Tester, compute capability 9.0, 80 GiB: codes gradients");
}

TEST(Gpus, OneWithoutACompilerIsAWarningWithARemedy) {
  const base::Status missing(base::StatusCode::kUnavailable, "NVRTC was not found");
  const Findings findings =
      check_gpus({.devices = {test_gpu()}, .compilers = {missing}, .cache_folder = "/c"});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_NE(findings[0].finding.find("NVRTC was not found"), std::string::npos);
  EXPECT_NE(findings[0].remedy.find("SPILLWAY_NVRTC"), std::string::npos);
}

TEST(Gpus, OneWithLittleSharedMemoryAndNoCacheIsToldSo) {
  gpu::DeviceInfo small = test_gpu();
  small.shared_bytes = 99 << 10;
  const Findings findings = check_gpus({.devices = {small}, .compilers = {{}}});
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].severity, Severity::kNote);
  EXPECT_EQ(findings[1].severity, Severity::kNote);
}

}  // namespace

}  // namespace spillway::doctor
