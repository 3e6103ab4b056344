// SPDX-License-Identifier: Apache-2.0
//
// Compares the programs in the kernel with the same decisions in C++: every frame must get the same
// verdict and the same bytes, and queues and counters must agree.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <linux/pkt_cls.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>

#include "switch/dataplane/frame.h"
#include "switch/dataplane/port_config.h"
#include "switch/fabric/frame.h"
#include "switch/kernel/measure/live_switch.h"
#include "switch/kernel/measure/probe_frames.h"
#include "switch/kernel/switch_object.h"
#include "wire/packet.h"

namespace spillway::kernel {
namespace {

// ------------------------------------------------------------------ random frames

unsigned below(std::mt19937& random, unsigned limit) {
  return static_cast<unsigned>(random() % limit);
}

std::vector<std::uint8_t> control_payload(std::mt19937& random) {
  std::vector<std::uint8_t> payload(sizeof(spillway_control_header) + below(random, 60));
  payload[0] = static_cast<std::uint8_t>(SPILLWAY_WIRE_VERSION << 4 | (2 + below(random, 5)));
  payload[1] = static_cast<std::uint8_t>(below(random, 16));
  return payload;
}

std::vector<std::uint8_t> random_payload(std::mt19937& random) {
  switch (below(random, 6)) {
    case 0:
      return control_payload(random);
    case 1: {
      std::vector<std::uint8_t> noise(below(random, 1400));
      std::generate(noise.begin(), noise.end(),
                    [&random] { return static_cast<std::uint8_t>(random()); });
      return noise;
    }
    default:
      return data_payload(90 + below(random, 1350), static_cast<std::uint8_t>(below(random, 8)));
  }
}

// Usually no tags, else up to one more than a switch understands.
std::vector<std::uint16_t> random_tags(std::mt19937& random) {
  std::vector<std::uint16_t> tags(below(random, 2) == 0 ? 0 : below(random, SPILLWAY_MAX_TAGS + 2));
  for (std::uint16_t& tag : tags) {
    tag = below(random, 2) == 0 ? SPILLWAY_ETHERTYPE_VLAN : SPILLWAY_ETHERTYPE_SERVICE_VLAN;
  }
  return tags;
}

// Damages anything but the receiver's address and the outermost tag.
void damage(std::mt19937& random, std::size_t first, Frame& frame) {
  for (unsigned i = 0; i < 1 + below(random, 4); ++i) {
    // Mostly headers, because decisions are made there.
    const std::size_t reach =
        below(random, 4) == 0 ? frame.size() : std::min<std::size_t>(frame.size(), 120);
    if (reach > first) {
      frame[first + below(random, static_cast<unsigned>(reach - first))] =
          static_cast<std::uint8_t>(random());
    }
  }
  if (below(random, 3) == 0) {
    // The kernel runs no program on a frame without payload.
    const std::size_t cut = below(random, static_cast<unsigned>(frame.size() + 1));
    frame.resize(std::max({first, cut, std::size_t{SPILLWAY_ETHERNET_HEADER + 1}}));
  }
  if (below(random, 6) == 0) {
    frame.resize(frame.size() + below(random, 40));
  }
}

// Any frame: data, control and foreign packets, often damaged. Its first six bytes are always
// kProbeReceiver, and its outermost VLAN, if any, is kProbeVlan of 802.1Q or 802.1ad.
Frame random_frame(std::mt19937& random) {
  FrameShape shape;
  shape.is_ipv6 = below(random, 2) == 0;
  shape.tags = random_tags(random);
  shape.option_words = below(random, 5) == 0 ? below(random, 11) : 0;
  shape.traffic_class = static_cast<std::uint8_t>(random());
  Frame frame = frame_of(shape, random_payload(random));
  if (below(random, 3) == 0) {
    damage(random, shape.tags.empty() ? 12 : 16, frame);
  }
  return frame;
}

// ------------------------------------------------------------------ the comparison

constexpr std::uint32_t kLoopback = 1;   // the index of `lo`
constexpr std::uint32_t kElsewhere = 2;  // the port's: frames do not go back where they came from
constexpr std::uint32_t kPort = 3;
// Shorter than Ethernet and IPv6 headers the kernel makes no socket buffer, and runs no tc program.
constexpr std::size_t kShortestForTc = 54;
constexpr std::uint64_t kStandsStill = ~std::uint64_t{0};  // a port that never drains

struct Expected {
  bool is_ours = false;  // else the kernel handles it
  bool is_forwarded = false;
  Frame frame;
};

// The expected verdict, by the code that the simulator and the user-space switch use.
class Model {
 public:
  spillway_switch_port switch_port = {};
  spillway_virtual_port port = {};
  spillway_port_tally tally = {};
  __u64 random_state = 0;
  bool queues_others = false;

  Expected pass(const Frame& in) {
    spillway_layout layout;
    spillway_frame frame;
    spillway_read_frame(in.data(), in.data() + in.size(), static_cast<std::uint32_t>(in.size()),
                        &layout, &frame);
    if (frame.flags == 0 && !queues_others) {
      ++tally.untouched;
      return {false, false, in};
    }
    const spillway_port_config& config = switch_port.config;
    const bool has_ramp =
        config.mode == SPILLWAY_PORT_ECN && config.red_min_bytes < config.red_max_bytes;
    const bool draws = has_ramp || switch_port.link.lost_of_2_32 != 0;
    const std::uint32_t word = draws ? spillway_next_random(&random_state) : 0;
    spillway_decision decision;
    spillway_pass_port(&config, &switch_port.link, &port, &frame, 0, word, &decision);
    spillway_count(&tally.counters, &frame, &decision);
    if (decision.verdict == SPILLWAY_DROP) {
      return {true, false, in};
    }
    if (switch_port.link.lost_of_2_32 != 0 &&
        spillway_next_random(&random_state) < switch_port.link.lost_of_2_32) {
      ++tally.lost;
      return {true, false, in};
    }
    ++tally.sent_packets;
    tally.sent_bytes += decision.bytes;
    return {true, true, changed(in, decision)};
  }

 private:
  Frame changed(Frame frame, const spillway_decision& decision) const {
    if (decision.bytes < frame.size()) {
      frame.resize(decision.bytes);
      fabric::fix_lengths(frame, switch_port.config.lengths);
    }
    fabric::set_traffic_class(frame, decision.dscp, decision.ecn);
    return frame;
  }
};

std::optional<SwitchObject> load(bool queues_others) {
  base::Result<SwitchObject> object = SwitchObject::load(
      {.programs = {Program::kXdp, Program::kAdmit}, .queues_others = queues_others});
  if (!object.ok()) {
    // Loading fails only without the rights.
    EXPECT_NE(object.status().message().find("CAP_BPF"), std::string::npos)
        << object.status().message();
    return std::nullopt;
  }
  return std::move(object).value();
}

class SwitchPrograms : public testing::TestWithParam<Program> {
 protected:
  bool start(bool queues_others) {
    stay_on_this_processor();
    object_ = load(queues_others);
    if (!object_) {
      return false;
    }
    maps_.emplace(object_->maps().value());
    model_.queues_others = queues_others;
    for (const std::uint16_t vlan :
         {std::uint16_t{0}, kProbeVlan, std::uint16_t{SPILLWAY_STATION_SERVICE | kProbeVlan}}) {
      spillway_station station = {};
      std::memcpy(station.address, kProbeReceiver, sizeof(kProbeReceiver));
      station.vlan = vlan;
      EXPECT_TRUE(maps_->write_station(station, kPort).ok());
    }
    EXPECT_TRUE(maps_->write_interface(kPort, kLoopback).ok());
    model_.switch_port.ifindex = kElsewhere;
    model_.port.drained_ns = kStandsStill;
    return true;
  }

  // Random states are per CPU, and the model follows one of them.
  static void stay_on_this_processor() {
    cpu_set_t processors;
    CPU_ZERO(&processors);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &processors);
    EXPECT_EQ(::sched_setaffinity(0, sizeof(processors), &processors), 0);
  }

  void set_up_port() {
    EXPECT_TRUE(maps_->write_port(kPort, model_.switch_port).ok());
    const spillway_port_slot slot = {.lock = {}, .reserved = 0, .port = model_.port};
    EXPECT_EQ(::bpf_map_update_elem(maps_->fd(MapName::kSlots), &kPort, &slot, BPF_ANY), 0);
  }

  void seed(std::uint64_t state) {
    model_.random_state = state;
    spillway_processor processor = {};
    processor.random_state = state;
    processor.frames = SPILLWAY_FRESH_ONE_IN - 1;  // the next frame asks the port
    const std::vector<spillway_processor> processors(
        static_cast<std::size_t>(::libbpf_num_possible_cpus()), processor);
    const std::uint32_t zero = 0;
    EXPECT_EQ(::bpf_map_update_elem(maps_->fd(MapName::kProcessors), &zero, processors.data(), 0),
              0);
  }

  void expect_same(const Frame& frame, const std::string& what) {
    if (GetParam() == Program::kAdmit && frame.size() < kShortestForTc) {
      return;
    }
    const Expected expected = model_.pass(frame);
    const base::Result<ProgramRun> run = run_program(object_->program_fd(GetParam()), frame);
    ASSERT_TRUE(run.ok()) << run.status().message();
    const bool is_xdp = GetParam() == Program::kXdp;
    const std::uint32_t go_on = is_xdp ? std::uint32_t{XDP_REDIRECT} : std::uint32_t{TC_ACT_OK};
    const std::uint32_t drop = is_xdp ? std::uint32_t{XDP_DROP} : std::uint32_t{TC_ACT_SHOT};
    const std::uint32_t leave =
        is_xdp ? std::uint32_t{XDP_PASS} : static_cast<std::uint32_t>(TC_ACT_UNSPEC);
    ASSERT_EQ(run->verdict, !expected.is_ours       ? leave
                            : expected.is_forwarded ? go_on
                                                    : drop)
        << what;
    ASSERT_EQ(run->frame, expected.frame) << what;
  }

  void expect_same_port(const std::string& what) {
    spillway_port_slot slot = {};
    ASSERT_EQ(::bpf_map_lookup_elem(maps_->fd(MapName::kSlots), &kPort, &slot), 0);
    const spillway_processor processor = this_processor();
    spillway_tell_port(&slot.port, processor.untold_queue, processor.untold_bytes,
                       processor.untold_frames);
    ASSERT_EQ(std::memcmp(&slot.port, &model_.port, sizeof(slot.port)), 0) << what;
  }

  spillway_processor this_processor() const {
    std::vector<spillway_processor> processors(
        static_cast<std::size_t>(::libbpf_num_possible_cpus()));
    const std::uint32_t zero = 0;
    EXPECT_EQ(::bpf_map_lookup_elem(maps_->fd(MapName::kProcessors), &zero, processors.data()), 0);
    return processors[static_cast<std::size_t>(::sched_getcpu())];
  }

  std::optional<SwitchObject> object_;
  std::optional<SwitchMaps> maps_;
  Model model_;
};

std::string name_of(const testing::TestParamInfo<Program>& program) {
  return program.param == Program::kXdp ? "Xdp" : "Tc";
}
INSTANTIATE_TEST_SUITE_P(Hooks, SwitchPrograms, testing::Values(Program::kXdp, Program::kAdmit),
                         name_of);

std::uint32_t up_to(std::mt19937& random, std::uint32_t limit) {
  return static_cast<std::uint32_t>(random() % (limit + 1));
}

spillway_port_config random_config(std::mt19937& random) {
  spillway_port_config config =
      dataplane::default_port_config(static_cast<spillway_port_mode>(up_to(random, 3)));
  config.queue_bytes = 2000 + up_to(random, 20'000);
  config.early_drop_bytes = up_to(random, config.queue_bytes);
  config.ecn_bytes = up_to(random, config.queue_bytes);
  config.priorities = static_cast<std::uint8_t>(1 + up_to(random, 7));
  config.red_min_bytes = up_to(random, 10'000);
  config.red_max_bytes = config.red_min_bytes + up_to(random, 10'000);
  config.red_max_percent = static_cast<std::uint8_t>(up_to(random, 100));
  if (config.mode >= SPILLWAY_PORT_TRIM) {
    config.control_queue_bytes = 500 + up_to(random, 20'000);
    config.trim_bytes = up_to(random, 5) == 0 ? 0 : 90 + up_to(random, 500);
    config.lengths = static_cast<std::uint8_t>(up_to(random, 2));
  }
  EXPECT_TRUE(dataplane::validate(config).ok());
  return config;
}

spillway_virtual_port random_port(std::mt19937& random) {
  spillway_virtual_port port = {};
  for (unsigned queue = 0; queue < SPILLWAY_QUEUES; ++queue) {
    port.state.bytes[queue] = up_to(random, 2) == 0 ? 0 : up_to(random, 22'000);
    port.state.occupied |= port.state.bytes[queue] != 0 ? 1U << queue : 0;
  }
  port.drained_ns = kStandsStill;
  return port;
}

TEST_P(SwitchPrograms, AgreeWithCppOnRandomFrames) {
  constexpr int kFrames = 100'000;
  constexpr int kFramesPerPort = 20;
  for (const bool queues_others : {false, true}) {
    model_ = {};
    if (!start(queues_others)) {
      GTEST_SKIP() << "no right to load programs";
    }
    std::mt19937 random(queues_others ? 7 : 11);
    for (int i = 0; i < kFrames / 2; ++i) {
      if (i % kFramesPerPort == 0) {
        model_.switch_port.config = random_config(random);
        model_.switch_port.link.lost_of_2_32 = up_to(random, 3) == 0 ? 1U << 30 : 0;
        model_.port = random_port(random);
        set_up_port();
        seed(random() | 1ULL);
      }
      const std::string what = "frame " + std::to_string(i);
      expect_same(random_frame(random), what);
      expect_same_port(what);
      if (HasFatalFailure()) {
        return;
      }
    }
    const spillway_port_tally tally = maps_->tally(kPort);
    EXPECT_EQ(std::memcmp(&tally, &model_.tally, sizeof(tally)), 0);
    // Every verdict must have occurred, or the test would show too little.
    for (unsigned reason = 0; reason < SPILLWAY_REASONS; ++reason) {
      EXPECT_GT(tally.counters.packets[reason], 20U) << reason;
    }
    EXPECT_GT(tally.lost, 20U);
  }
}

// ------------------------------------------------------------------ golden packets

std::vector<std::uint8_t> golden_packet(const std::string& name) {
  std::ifstream file(std::string(SPILLWAY_GOLDEN) + "/" + name + ".hex");
  EXPECT_TRUE(file) << name;
  std::vector<std::uint8_t> bytes;
  std::string digits;
  for (char c; file.get(c);) {
    if (std::isxdigit(static_cast<unsigned char>(c)) != 0) {
      digits.push_back(c);
    } else if (c == '#') {
      std::getline(file, digits);
      digits.clear();
    }
    if (digits.size() == 2) {
      bytes.push_back(static_cast<std::uint8_t>(std::stoul(digits, nullptr, 16)));
      digits.clear();
    }
  }
  return bytes;
}

TEST_P(SwitchPrograms, AgreeWithCppOnGoldenPackets) {
  if (!start(false)) {
    GTEST_SKIP() << "no right to load programs";
  }
  for (const char* name : {"planes8", "planes16", "planes16_encrypted", "planes32",
                           "planes12_last_packet", "spike_row", "zero_row", "non_finite_row"}) {
    const std::vector<std::uint8_t> packet = golden_packet(name);
    for (const bool is_ipv6 : {false, true}) {
      for (const bool is_full : {false, true}) {
        const spillway_port_config config = dataplane::default_port_config(SPILLWAY_PORT_SPILLWAY);
        model_.switch_port.config = config;
        model_.switch_port.config.early_drop_bytes = 0;
        model_.port = {};
        model_.port.drained_ns = kStandsStill;
        for (std::uint32_t& bytes : model_.port.state.bytes) {
          bytes = is_full ? config.queue_bytes : 0;
        }
        model_.port.state.bytes[SPILLWAY_CONTROL_QUEUE] = 0;
        set_up_port();
        const std::uint64_t trimmed = model_.tally.counters.packets[SPILLWAY_REASON_TRIMMED];
        const std::uint64_t admitted = model_.tally.counters.packets[SPILLWAY_REASON_ADMITTED];
        const Frame frame = frame_of({.is_ipv6 = is_ipv6, .traffic_class = 9 << 2}, packet);
        expect_same(frame, name);
        const bool is_long = frame.size() > config.trim_bytes;
        EXPECT_EQ(model_.tally.counters.packets[SPILLWAY_REASON_TRIMMED],
                  trimmed + (is_full && is_long ? 1 : 0))
            << name;
        EXPECT_EQ(model_.tally.counters.packets[SPILLWAY_REASON_ADMITTED],
                  admitted + (is_full ? 0 : 1))
            << name;
      }
    }
  }
}

// ------------------------------------------------------------------ time

TEST_P(SwitchPrograms, DrainAtTheLinksRate) {
  if (!start(false)) {
    GTEST_SKIP() << "no right to load programs";
  }
  model_.switch_port.config = dataplane::default_port_config(SPILLWAY_PORT_SPILLWAY);
  model_.switch_port.link.rate = 1U << SPILLWAY_RATE_SHIFT;  // a byte per nanosecond
  model_.port = {};
  model_.port.state.bytes[2] = 100'000;
  model_.port.state.occupied = 1U << 2;
  model_.port.drained_ns = 1;  // long ago
  set_up_port();
  seed(1);
  const Frame frame = frame_of({.traffic_class = 9 << 2}, data_payload(1400, 7));
  ASSERT_TRUE(run_program(object_->program_fd(GetParam()), frame).ok());
  spillway_port_slot slot = {};
  ASSERT_EQ(::bpf_map_lookup_elem(maps_->fd(MapName::kSlots), &kPort, &slot), 0);
  EXPECT_EQ(slot.port.state.bytes[2], 0U);
  EXPECT_EQ(slot.port.state.bytes[1], frame.size());
  EXPECT_EQ(slot.port.overhead, static_cast<std::uint32_t>(SPILLWAY_WIRE_OVERHEAD));
  EXPECT_EQ(maps_->tally(kPort).counters.packets[SPILLWAY_REASON_ADMITTED], 1U);
}

// ------------------------------------------------------------------ frames reported later

TEST_P(SwitchPrograms, APortIsToldOfEveryFrameThatWentIn) {
  if (!start(false)) {
    GTEST_SKIP() << "no right to load programs";
  }
  model_.switch_port.config = dataplane::default_port_config(SPILLWAY_PORT_SPILLWAY);
  model_.switch_port.config.ecn_bytes = model_.switch_port.config.queue_bytes;
  model_.switch_port.config.early_drop_bytes = 0;
  model_.port = {};
  model_.port.drained_ns = kStandsStill;
  set_up_port();
  seed(1);
  const Frame frame = frame_of({.traffic_class = 9 << 2}, data_payload(1400, 7));
  const auto known_bytes = [this] {
    spillway_port_slot slot = {};
    EXPECT_EQ(::bpf_map_lookup_elem(maps_->fd(MapName::kSlots), &kPort, &slot), 0);
    return slot.port.state.bytes[1];
  };
  for (std::size_t i = 1; i <= 2 * SPILLWAY_FRESH_ONE_IN + 1; ++i) {
    expect_same(frame, "frame");
    expect_same_port("frame " + std::to_string(i));
    // The first frame asks the port, then one in SPILLWAY_FRESH_ONE_IN.
    const std::size_t told = (i - 1) / SPILLWAY_FRESH_ONE_IN * SPILLWAY_FRESH_ONE_IN + 1;
    EXPECT_EQ(known_bytes(), told * frame.size()) << i;
  }
}

}  // namespace

}  // namespace spillway::kernel
