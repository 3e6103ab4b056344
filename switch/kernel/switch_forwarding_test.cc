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

#include "switch/dataplane/fixup.h"
#include "switch/dataplane/port_config.h"
#include "switch/fabric/frame.h"
#include "switch/fabric/ingress.h"
#include "switch/kernel/measure/live_switch.h"
#include "switch/kernel/measure/probe_frames.h"
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

// ------------------------------------------------------------------ tags
//
// Frames with VLAN tags through every version of the switch: what the kernel's programs do with
// them at a full port, what the user-space switch does, and what both should do.

constexpr std::uint16_t kQ = SPILLWAY_ETHERTYPE_VLAN;
constexpr std::uint16_t kAd = SPILLWAY_ETHERTYPE_SERVICE_VLAN;
constexpr std::uint32_t kTrimTo = 256;
constexpr std::uint32_t kOnlyPort = 7;

struct GoldenFrame {
  const char* name;
  std::vector<std::uint16_t> tags;
  std::size_t cut_to;  // 0: whole
  bool is_spillways;
};

// Frames that end within the IP header belong to nobody; frames with too many tags belong to
// others.
const GoldenFrame kGolden[] = {{"plain", {}, 0, true},
                               {"q", {kQ}, 0, true},
                               {"ad", {kAd}, 0, true},
                               {"ad and q", {kAd, kQ}, 0, true},
                               {"q and q", {kQ, kQ}, 0, true},
                               {"three tags", {kAd, kQ, kQ}, 0, false},
                               {"ends in its tag", {kQ}, 15, false},
                               {"ends behind its tag's number", {kQ}, 16, false},
                               {"ends in its second tag", {kAd, kQ}, 19, false},
                               {"ends behind its tags", {kAd, kQ}, 22, false},
                               {"ends in IP", {kAd, kQ}, 60, false}};

Frame golden_frame(const GoldenFrame& golden, bool is_ipv6) {
  Frame frame = frame_of({.is_ipv6 = is_ipv6, .tags = golden.tags, .traffic_class = 9 << 2},
                         data_payload(1400, 7));
  if (golden.cut_to != 0) {
    frame.resize(golden.cut_to);
  }
  return frame;
}

std::uint32_t be16_at(const Frame& frame, std::size_t offset) {
  return spillway_load_be16(&frame[offset]);
}

// Expects a trimmed golden frame: its tags, and lengths that agree with the cut.
void expect_trimmed(const GoldenFrame& golden, bool is_ipv6, const Frame& whole,
                    const Frame& frame) {
  const std::size_t ip = 14 + 4 * golden.tags.size();
  ASSERT_EQ(frame.size(), kTrimTo) << golden.name;
  EXPECT_TRUE(
      std::equal(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(ip), whole.begin()))
      << golden.name;
  EXPECT_EQ(be16_at(frame, is_ipv6 ? ip + 4 : ip + 2), kTrimTo - ip - (is_ipv6 ? 40 : 0))
      << golden.name;
  const std::size_t udp = ip + (is_ipv6 ? 40 : 20);
  EXPECT_EQ(be16_at(frame, udp + 4), kTrimTo - udp) << golden.name;
  Frame again = frame;
  EXPECT_EQ(spillway_fixup_frame(again.data(), again.data() + again.size()),
            SPILLWAY_FIXUP_NOT_NEEDED);
  fabric::complete_checksum(again);
  if (is_ipv6) {
    EXPECT_EQ(again, frame) << golden.name << ": its checksum was wrong";
  }
}

// ------------------------------------------------------------------ user space

// The frame as the fabric sends it from a full port; empty if it is not Spillway's.
Frame through_the_fabric(const Frame& frame) {
  sim::PacketPool pool;
  fabric::Ingress ingress(pool, 2);
  ingress.take_frame(0, frame, {});
  EXPECT_EQ(ingress.arrivals().size(), 1U);
  const sim::PacketIndex index = ingress.arrivals().front().packet;
  Frame left;
  if (pool[index].kind == sim::PacketKind::kSpillwayData) {
    pool.trim(pool[index], kTrimTo);
    const base::MutableByteView bytes = pool.payload(pool[index]);
    fabric::fix_lengths(bytes);
    fabric::set_traffic_class(bytes, SPILLWAY_DSCP_TRIMMED, 0);
    left.assign(bytes.begin(), bytes.end());
  }
  pool.release(index);
  return left;
}

TEST(TaggedFrames, AreTrimmedByTheFabric) {
  for (const GoldenFrame& golden : kGolden) {
    for (const bool is_ipv6 : {false, true}) {
      const Frame frame = golden_frame(golden, is_ipv6);
      const Frame left = through_the_fabric(frame);
      ASSERT_EQ(!left.empty(), golden.is_spillways) << golden.name;
      if (golden.is_spillways) {
        expect_trimmed(golden, is_ipv6, frame, left);
      }
    }
  }
}

// ------------------------------------------------------------------ tags beside the frame

// Takes the outermost tag out, as the kernel does.
spillway_tag take_tag(Frame& frame) {
  if (frame.size() < 18 || spillway_is_tag(be16_at(frame, 12)) == 0) {
    return {};
  }
  const spillway_tag tag = {static_cast<__u16>(be16_at(frame, 12)),
                            static_cast<__u16>(be16_at(frame, 14))};
  frame.erase(frame.begin() + 12, frame.begin() + 16);
  return tag;
}

TEST(TaggedFrames, AreTheSameWhereverTheirTagLies) {
  for (const GoldenFrame& golden : kGolden) {
    for (const bool is_ipv6 : {false, true}) {
      const Frame inside = golden_frame(golden, is_ipv6);
      Frame bare = inside;
      const spillway_tag beside = take_tag(bare);
      const spillway_tag none = {};
      spillway_layout layouts[2];
      spillway_frame frames[2];
      spillway_station stations[2];
      spillway_read_frame(inside.data(), inside.data() + inside.size(),
                          static_cast<__u32>(inside.size()), &layouts[0], &frames[0]);
      spillway_read_frame_beside(bare.data(), bare.data() + bare.size(),
                                 static_cast<__u32>(bare.size()), &beside, &layouts[1], &frames[1]);
      EXPECT_EQ(std::memcmp(&frames[0], &frames[1], sizeof(spillway_frame)), 0) << golden.name;
      EXPECT_EQ(frames[0].flags, golden.is_spillways ? SPILLWAY_FRAME_TRIMMABLE : 0);
      if (layouts[0].ip != 0) {
        EXPECT_EQ(layouts[0].ip, layouts[1].ip + spillway_bytes_beside(&beside)) << golden.name;
      }
      ASSERT_TRUE(spillway_read_receiver(inside.data(), inside.data() + inside.size(), &none,
                                         &stations[0]));
      ASSERT_TRUE(
          spillway_read_receiver(bare.data(), bare.data() + bare.size(), &beside, &stations[1]));
      EXPECT_EQ(std::memcmp(&stations[0], &stations[1], sizeof(spillway_station)), 0);
    }
  }
}

// ------------------------------------------------------------------ the kernel

class TaggedFramesInKernel : public testing::TestWithParam<Program> {
 protected:
  bool start() {
    base::Result<SwitchObject> object = SwitchObject::load({.programs = {GetParam()}});
    if (!object.ok()) {
      EXPECT_NE(object.status().message().find("CAP_BPF"), std::string::npos)
          << object.status().message();
      return false;
    }
    object_.emplace(std::move(object).value());
    maps_.emplace(object_->maps().value());
    for (const std::uint16_t vlan :
         {std::uint16_t{0}, kProbeVlan, std::uint16_t{SPILLWAY_STATION_SERVICE | kProbeVlan}}) {
      spillway_station station = {};
      std::memcpy(station.address, kProbeReceiver, sizeof(kProbeReceiver));
      station.vlan = vlan;
      EXPECT_TRUE(maps_->write_station(station, kOnlyPort).ok());
    }
    EXPECT_TRUE(maps_->write_interface(kOnlyPort, 1).ok());  // `lo`, where test frames come in
    set_up_full_port();
    return true;
  }

  void set_up_full_port() {
    spillway_switch_port port = {};
    port.ifindex = 2;  // not where the frames come in
    port.config = dataplane::default_port_config(SPILLWAY_PORT_TRIM);
    port.config.queue_bytes = 1;
    port.config.trim_bytes = kTrimTo;
    EXPECT_TRUE(maps_->write_port(kOnlyPort, port).ok());
    EXPECT_TRUE(maps_->seed_processors().ok());
  }

  std::optional<SwitchObject> object_;
  std::optional<SwitchMaps> maps_;
};

std::string tagging_hook_name(const testing::TestParamInfo<Program>& program) {
  return program.param == Program::kXdp ? "Xdp" : "Tc";
}
INSTANTIATE_TEST_SUITE_P(Hooks, TaggedFramesInKernel,
                         testing::Values(Program::kXdp, Program::kAdmit), tagging_hook_name);

TEST_P(TaggedFramesInKernel, AreTrimmedAsTheFabricTrimsThem) {
  if (!start()) {
    GTEST_SKIP() << "no right to load programs";
  }
  const bool is_xdp = GetParam() == Program::kXdp;
  const std::uint32_t go_on = is_xdp ? std::uint32_t{XDP_REDIRECT} : std::uint32_t{TC_ACT_OK};
  const std::uint32_t leave =
      is_xdp ? std::uint32_t{XDP_PASS} : static_cast<std::uint32_t>(TC_ACT_UNSPEC);
  std::uint64_t trimmed = 0;
  for (const GoldenFrame& golden : kGolden) {
    for (const bool is_ipv6 : {false, true}) {
      const Frame frame = golden_frame(golden, is_ipv6);
      if (!is_xdp && frame.size() < 54) {
        continue;  // too short for a socket buffer
      }
      const base::Result<ProgramRun> run = run_program(object_->program_fd(GetParam()), frame);
      ASSERT_TRUE(run.ok()) << run.status().message();
      ASSERT_EQ(run->verdict, golden.is_spillways ? go_on : leave) << golden.name;
      const Frame left = through_the_fabric(frame);
      ASSERT_EQ(run->frame, golden.is_spillways ? left : frame) << golden.name;
      trimmed += golden.is_spillways ? 1 : 0;
    }
  }
  EXPECT_EQ(maps_->tally(kOnlyPort).counters.packets[SPILLWAY_REASON_TRIMMED], trimmed);
}

}  // namespace

}  // namespace spillway::kernel
