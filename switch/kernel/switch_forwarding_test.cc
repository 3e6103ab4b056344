// SPDX-License-Identifier: Apache-2.0
//
// Where the forwarding programs send frames: to the port that the receiver is behind, in its VLAN,
// and never back where they came from.
#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <linux/pkt_cls.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "switch/dataplane/port_config.h"
#include "switch/kernel/measure/probe_frames.h"
#include "switch/kernel/measure/program_run.h"
#include "switch/kernel/switch_object.h"

namespace spillway::kernel {
namespace {

constexpr std::uint32_t kTestRunsAt = 1;  // `lo`, where frames of test runs come in
constexpr std::uint32_t kFarInterface = 2;
constexpr std::uint32_t kNearPort = 5;
constexpr std::uint32_t kFarPort = 6;

using Tags = std::vector<std::uint16_t>;

spillway_station station_at(const std::uint8_t* address, std::uint16_t vlan) {
  spillway_station station = {};
  std::copy_n(address, sizeof(station.address), station.address);
  station.vlan = vlan;
  return station;
}

// A Spillway data packet, or a foreign one.
Frame tagged_frame(const Tags& tags, bool is_spillways = true) {
  return frame_of({.tags = tags, .traffic_class = 9 << 2},
                  is_spillways ? data_payload(1400, 7) : std::vector<std::uint8_t>(1400, 0xEE));
}

class SwitchForwarding : public testing::TestWithParam<Program> {
 protected:
  bool start(bool queues_others) {
    base::Result<SwitchObject> object =
        SwitchObject::load({.programs = {GetParam()}, .queues_others = queues_others});
    if (!object.ok()) {
      EXPECT_NE(object.status().message().find("CAP_BPF"), std::string::npos)
          << object.status().message();
      return false;
    }
    object_.emplace(std::move(object).value());
    maps_.emplace(object_->maps().value());
    spillway_switch_port port = {};
    port.config = dataplane::default_port_config(SPILLWAY_PORT_SPILLWAY);
    port.ifindex = kTestRunsAt;
    EXPECT_TRUE(maps_->write_port(kNearPort, port).ok());
    port.ifindex = kFarInterface;
    EXPECT_TRUE(maps_->write_port(kFarPort, port).ok());
    EXPECT_TRUE(maps_->write_interface(kNearPort, kTestRunsAt).ok());
    // Any interface will do: test runs send nothing.
    EXPECT_EQ(::bpf_map_update_elem(maps_->fd(MapName::kDevices), &kFarPort, &kTestRunsAt, 0), 0);
    EXPECT_TRUE(maps_->seed_processors().ok());
    return true;
  }

  void put_receiver(std::uint16_t vlan, std::uint32_t port) {
    EXPECT_TRUE(maps_->write_station(station_at(kProbeReceiver, vlan), port).ok());
  }

  std::uint32_t verdict(const Frame& frame) {
    const base::Result<ProgramRun> run = run_program(object_->program_fd(GetParam()), frame);
    EXPECT_TRUE(run.ok()) << run.status().message();
    return run.ok() ? run->verdict : ~0U;
  }

  static bool is_xdp() { return GetParam() == Program::kXdp; }
  static std::uint32_t sent_on() {
    return is_xdp() ? std::uint32_t{XDP_REDIRECT} : std::uint32_t{TC_ACT_REDIRECT};
  }
  static std::uint32_t dropped() {
    return is_xdp() ? std::uint32_t{XDP_DROP} : std::uint32_t{TC_ACT_SHOT};
  }
  static std::uint32_t left_to_kernel() {
    return is_xdp() ? std::uint32_t{XDP_PASS} : static_cast<std::uint32_t>(TC_ACT_UNSPEC);
  }

  std::optional<SwitchObject> object_;
  std::optional<SwitchMaps> maps_;
};

std::string forwarder_name(const testing::TestParamInfo<Program>& program) {
  return program.param == Program::kXdp ? "Xdp" : "Tc";
}
INSTANTIATE_TEST_SUITE_P(Hooks, SwitchForwarding, testing::Values(Program::kXdp, Program::kForward),
                         forwarder_name);

struct TaggedStation {
  Tags tags;
  std::uint16_t vlan;  // the station's
};
const TaggedStation kTaggedStations[] = {
    {{}, 0},
    {{SPILLWAY_ETHERTYPE_VLAN}, kProbeVlan},
    {{SPILLWAY_ETHERTYPE_SERVICE_VLAN}, SPILLWAY_STATION_SERVICE | kProbeVlan},
    {{SPILLWAY_ETHERTYPE_SERVICE_VLAN, SPILLWAY_ETHERTYPE_VLAN},
     SPILLWAY_STATION_SERVICE | kProbeVlan}};

TEST_P(SwitchForwarding, FramesGoToTheirPortAndNeverBack) {
  for (const TaggedStation& one : kTaggedStations) {
    if (!start(false)) {
      GTEST_SKIP() << "no right to load programs";
    }
    put_receiver(one.vlan, kFarPort);
    EXPECT_EQ(verdict(tagged_frame(one.tags)), sent_on()) << one.tags.size();
    EXPECT_EQ(maps_->tally(kFarPort).same_port, 0U);
    EXPECT_TRUE(maps_->seed_processors().ok());  // forget the remembered receiver
    put_receiver(one.vlan, kNearPort);
    EXPECT_EQ(verdict(tagged_frame(one.tags)), dropped()) << one.tags.size();
    EXPECT_EQ(maps_->tally(kNearPort).same_port, 1U);
    EXPECT_EQ(maps_->tally(kNearPort).sent_packets, 0U);
    EXPECT_EQ(maps_->tally(kNearPort).counters.packets[SPILLWAY_REASON_ADMITTED], 0U);
  }
}

// XDP leaves these frames to the kernel, which forwards them.
TEST_P(SwitchForwarding, OthersFramesDoNotGoBackEither) {
  for (const bool queues_others : {false, true}) {
    if (!start(queues_others)) {
      GTEST_SKIP() << "no right to load programs";
    }
    put_receiver(0, kNearPort);
    const bool is_left = is_xdp() && !queues_others;
    EXPECT_EQ(verdict(tagged_frame({}, false)), is_left ? left_to_kernel() : dropped());
    EXPECT_EQ(maps_->tally(kNearPort).same_port, is_left ? 0U : 1U);
    EXPECT_EQ(maps_->tally(kNearPort).untouched, is_left ? 1U : 0U);
  }
}

TEST_P(SwitchForwarding, GroupsAndStrangersAreLeftToTheKernel) {
  if (!start(true)) {
    GTEST_SKIP() << "no right to load programs";
  }
  EXPECT_EQ(verdict(tagged_frame({})), left_to_kernel());
  put_receiver(0, kFarPort);
  Frame to_all = tagged_frame({});
  std::fill_n(to_all.begin(), SPILLWAY_ADDRESS_BYTES, std::uint8_t{0xFF});
  EXPECT_EQ(verdict(to_all), left_to_kernel());
}

TEST_P(SwitchForwarding, AnAddressInAnotherVlanIsSomebodyElse) {
  if (!start(true)) {
    GTEST_SKIP() << "no right to load programs";
  }
  put_receiver(kProbeVlan, kFarPort);
  EXPECT_EQ(verdict(tagged_frame({SPILLWAY_ETHERTYPE_VLAN})), sent_on());
  EXPECT_EQ(verdict(tagged_frame({})), left_to_kernel());
  EXPECT_EQ(verdict(tagged_frame({SPILLWAY_ETHERTYPE_SERVICE_VLAN})), left_to_kernel());
}

TEST_P(SwitchForwarding, SendersAreLearnedInTheirVlan) {
  if (!start(true)) {
    GTEST_SKIP() << "no right to load programs";
  }
  const Frame frame = tagged_frame({SPILLWAY_ETHERTYPE_SERVICE_VLAN, SPILLWAY_ETHERTYPE_VLAN});
  EXPECT_EQ(verdict(frame), left_to_kernel());
  const spillway_station sender =
      station_at(&frame[SPILLWAY_ADDRESS_BYTES], SPILLWAY_STATION_SERVICE | kProbeVlan);
  std::uint32_t port = 0;
  ASSERT_EQ(::bpf_map_lookup_elem(maps_->fd(MapName::kStations), &sender, &port), 0);
  EXPECT_EQ(port, kNearPort);
  Frame answer = frame;
  std::copy_n(&frame[SPILLWAY_ADDRESS_BYTES], SPILLWAY_ADDRESS_BYTES, answer.begin());
  EXPECT_EQ(verdict(answer), dropped());  // it would go back
}

}  // namespace
}  // namespace spillway::kernel
