// SPDX-License-Identifier: Apache-2.0
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <linux/pkt_cls.h>
#include <sched.h>

#include <cstring>
#include <optional>
#include <random>
#include <tuple>

#include "switch/dataplane/port_config.h"
#include "switch/dataplane/sum_frame.h"
#include "switch/dataplane/sum_testing.h"
#include "switch/fabric/frame.h"
#include "switch/kernel/measure/live_switch.h"
#include "switch/kernel/measure/probe_frames.h"
#include "switch/kernel/switch_object.h"

namespace spillway::kernel {

// Compares the programs in the kernel with the same state machine in C++, on sum packets: every
// frame must get the same verdict and the same bytes, and slots and counters must agree.

namespace {

constexpr std::uint32_t kLoopbackIndex = 1;  // where test frames come in
constexpr std::uint32_t kElsewhereHost =
    2;  // the port's: frames do not go back where they came from
constexpr std::uint32_t kSumsPort = 3;
constexpr std::uint32_t kSlots = 64;
constexpr std::uint64_t kNow = 1'000'000'000;
constexpr int kPackets = 100'000;

enum class Fate : std::uint8_t { kGone, kOn, kBack };

struct Outcome {
  Fate fate = Fate::kGone;
  Frame frame;
};

spillway_sum_config config_of(spillway_sum_policy policy) {
  return {.slots = kSlots,
          .lease_us = 0xFFFFFFFF,  // the kernel's clock keeps running
          .pools = 4,
          .policy = static_cast<std::uint8_t>(policy),
          .level = 0,
          .reserved = {}};
}

// ------------------------------------------------------------------ the state machine in C++

class SumsModel {
 public:
  explicit SumsModel(const spillway_sum_config& config) : sums_(config) {}

  Outcome pass(Frame frame) {
    spillway_layout layout;
    spillway_sum_frame found;
    dataplane::SumPacket packet;
    spillway_find_layout(frame.data(), frame.data() + frame.size(), &layout);
    const __u8* end = frame.data() + frame.size();
    if (spillway_find_sum(frame.data(), end, static_cast<std::uint32_t>(frame.size()), &layout,
                          &packet.image, &found) == 0) {
      return {Fate::kOn, frame};
    }
    if (found.is_plain == 0) {
      sums_.find_job(packet.header().common.job, kNow, kLoopbackIndex);
      ++sums_.counters().outcomes[SPILLWAY_SUM_PAST_IPV6];
      return {Fate::kOn, frame};
    }
    EXPECT_NE(spillway_read_route(frame.data(), end, &layout, &packet.route), 0);
    packet.is_whole = found.has_words != 0;
    const std::size_t words = layout.transport + SPILLWAY_UDP_HEADER + sizeof(spillway_sum_header);
    if (packet.is_whole && spillway_sum_has_words(packet.header().kind) != 0) {
      std::memcpy(packet.words.data(), &frame[words], SPILLWAY_SUM_WORD_BYTES);
    }
    const spillway_sum_slot* slot = sums_.slot_of(packet, kNow, kLoopbackIndex);
    const std::uint8_t held_class = slot == nullptr ? std::uint8_t{0} : slot->route.traffic_class;
    const spillway_sum_decision decision = sums_.take(packet, kNow, kLoopbackIndex);
    return {carry_out(decision, layout, held_class, packet, frame), frame};
  }

  dataplane::SumSwitch& sums() { return sums_; }

 private:
  Fate carry_out(const spillway_sum_decision& decision, const spillway_layout& layout,
                 std::uint8_t held_class, dataplane::SumPacket& packet, Frame& frame) {
    if (decision.action == SPILLWAY_SUM_ABSORB) {
      return Fate::kGone;
    }
    if (decision.action == SPILLWAY_SUM_TURN) {
      frame.resize(layout.ip + SPILLWAY_SUM_DATAGRAM);
    }
    __u8* data = frame.data();
    const __u8* end = data + frame.size();
    if (decision.action == SPILLWAY_SUM_TO_MANY) {
      return spread(layout, packet, frame);
    }
    if (decision.action == SPILLWAY_SUM_SWAP) {
      spillway_write_route(data, end, &layout, &packet.route);
    }
    if (decision.move != SPILLWAY_SUM_MOVE_NONE) {
      std::memcpy(spillway_sum_words_in(data, end, &layout), packet.words.data(),
                  SPILLWAY_SUM_WORD_BYTES);
    }
    if (decision.is_changed != 0) {
      spillway_write_sum(data, end, &layout, &packet.image);
    }
    if (decision.action != SPILLWAY_SUM_TURN) {
      return Fate::kOn;
    }
    spillway_turn_route(data, end, &layout);
    spillway_set_sum_lengths(data, end, &layout, held_class);
    return Fate::kBack;
  }

  // All members are behind the ingress port, so nobody gets a copy.
  Fate spread(const spillway_layout& layout, dataplane::SumPacket& packet, Frame& frame) {
    spillway_sum_spread spread;
    spillway_sum_copy copy;
    spillway_begin_spread(&packet.image, kLoopbackIndex, &spread);
    EXPECT_EQ(spillway_next_copy(sums_.find_job(packet.header().common.job, kNow, kLoopbackIndex),
                                 &spread, &copy),
              0);
    if (spillway_keep_result(&spread, &packet.image) == 0) {
      return Fate::kGone;
    }
    spillway_write_route(frame.data(), frame.data() + frame.size(), &layout, &packet.route);
    spillway_write_sum(frame.data(), frame.data() + frame.size(), &layout, &packet.image);
    return Fate::kOn;
  }

  dataplane::SumSwitch sums_;
};

// ------------------------------------------------------------------ the programs

class Programs {
 public:
  // Null without the rights.
  static std::optional<Programs> load(const spillway_sum_config& config, Program first) {
    base::Result<SwitchObject> object =
        SwitchObject::load({.programs = {first, Program::kSums}, .sums = config});
    if (!object.ok()) {
      EXPECT_NE(object.status().message().find("CAP_BPF"), std::string::npos)
          << object.status().message();
      return std::nullopt;
    }
    return Programs(std::move(object).value(), first);
  }

  Outcome pass(const Frame& frame) {
    const ProgramRun first = run_program(object_.program_fd(first_), frame).value();
    if (first_ == Program::kForward) {
      return {fate_of(first), first.frame};
    }
    if (first.verdict != XDP_PASS) {
      return {first.verdict == XDP_REDIRECT ? Fate::kOn : Fate::kGone, first.frame};
    }
    const ProgramRun second = run_program(object_.program_fd(Program::kSums), first.frame).value();
    return {fate_of(second), second.frame};
  }

  const SwitchMaps& maps() const { return maps_; }

 private:
  Programs(SwitchObject object, Program first)
      : object_(std::move(object)), maps_(object_.maps().value()), first_(first) {
    for (const std::uint16_t vlan :
         {std::uint16_t{0}, kProbeVlan, std::uint16_t{SPILLWAY_STATION_SERVICE | kProbeVlan}}) {
      spillway_station station = {};
      std::memcpy(station.address, kProbeReceiver, sizeof(kProbeReceiver));
      station.vlan = vlan;
      EXPECT_TRUE(maps_.write_station(station, kSumsPort).ok());
    }
    EXPECT_TRUE(maps_.write_interface(kSumsPort, kLoopbackIndex).ok());
    spillway_switch_port port = {};
    port.config = dataplane::default_port_config(SPILLWAY_PORT_DROP_TAIL);
    port.config.queue_bytes = SPILLWAY_MAX_QUEUE_BYTES;
    port.link.rate = 0xFFFFFFFF;
    port.ifindex = kElsewhereHost;
    EXPECT_TRUE(maps_.write_port(kSumsPort, port).ok());
    EXPECT_TRUE(maps_.seed_processors().ok());
  }

  // Frames for the common receiver go on; frames for their sender go back.
  static Fate fate_of(const ProgramRun& run) {
    if (run.verdict == TC_ACT_SHOT) {
      return Fate::kGone;
    }
    return std::memcmp(run.frame.data(), kProbeReceiver, sizeof(kProbeReceiver)) == 0 ? Fate::kOn
                                                                                      : Fate::kBack;
  }

  SwitchObject object_;
  SwitchMaps maps_;
  Program first_;  // where frames come in
};

// ------------------------------------------------------------------ packets

class Packets {
 public:
  explicit Packets(std::uint32_t seed) : random_(seed) {}

  Frame next() {
    FrameShape shape;
    ++made_;
    shape.traffic_class = static_cast<std::uint8_t>(below(64) << 2 | below(4));
    if (below(4) == 0) {
      shape.tags.assign(1 + below(2), std::uint16_t{SPILLWAY_ETHERTYPE_VLAN});
    }
    shape.is_ipv6 = below(50) == 0;
    shape.option_words = below(50) == 0 ? 1 : 0;
    std::vector<std::uint8_t> payload = sum_payload();
    if (below(30) == 0) {
      payload.resize(sizeof(spillway_sum_header) + below(300));  // trimmed, or too long
    }
    Frame frame = frame_of(shape, payload);
    frame[11] = static_cast<std::uint8_t>(8 + below(8));  // the sender's address
    return frame;
  }

 private:
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }

  std::uint8_t kind() {
    constexpr std::uint8_t kRare[] = {SPILLWAY_SUM_RETRANSMIT, SPILLWAY_SUM_FLUSH,
                                      SPILLWAY_SUM_FLUSH,      SPILLWAY_SUM_RESULT,
                                      SPILLWAY_SUM_WANT,       0,
                                      SPILLWAY_SUM_KINDS};
    return below(5) == 0 ? kRare[below(std::size(kRare))] : std::uint8_t{SPILLWAY_SUM_PART};
  }

  void set_ranks(spillway_sum_header& header) {
    const std::uint32_t shift = below(40) == 0 ? 62 : 0;
    const std::uint64_t first = std::uint64_t{1} << below(6);
    const std::uint64_t more = below(8) == 0 ? below(64) : 0;
    header.ranks[0] = below(100) == 0 ? 0 : (first | more) << shift;
    header.ranks[1] = below(20) == 0 ? 1 : 0;
    header.common.source = static_cast<std::uint16_t>(__builtin_ctzll(first) + shift);
    if (header.kind == SPILLWAY_SUM_FLUSH) {
      header.ranks[0] |= below(4) == 0 ? below(64) : 63;
    }
  }

  void set_common(spillway_packet_header& common) {
    common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_SUM;
    common.flags = below(5) == 0 ? SPILLWAY_FLAG_RETRANSMIT : 0;
    common.job = static_cast<std::uint16_t>(below(500) == 0 ? below(65536) : below(5));
    common.epoch = static_cast<std::uint8_t>(made_ / 20'000 - (below(50) == 0 ? 1 : 0));
    common.destination = static_cast<std::uint16_t>(below(6));
    common.operation = below(30) == 0 ? 1 : 0;
    common.service = static_cast<std::uint8_t>(below(256));
    common.path = below(3) == 0 ? 1 : 0;
    common.packet = static_cast<std::uint16_t>(below(8));
    common.timestamp_us = below(1U << 24);
  }

  std::vector<std::uint8_t> sum_payload() {
    spillway_sum_header header = {};
    set_common(header.common);
    header.signature = below(50) == 0 ? below(2) : 0;
    header.kind = kind();
    header.level = static_cast<std::uint8_t>(below(20) == 0 ? below(4) : 0);
    header.urgency = static_cast<std::uint8_t>(below(256));
    header.owner = static_cast<std::uint16_t>(below(2));
    header.need[0] = static_cast<std::uint8_t>(below(20) == 0 ? below(256) : 2 + below(4));
    set_ranks(header);
    if (header.kind == SPILLWAY_SUM_RESULT && below(2) == 0) {
      header.marks = SPILLWAY_SUM_MULTIPLY;
      header.recipients[0] = below(64);
    }
    header.tag = {random_(), random_()};
    std::vector<std::uint8_t> payload(spillway_sum_packet_size(header.kind));
    std::memcpy(payload.data(), &header, sizeof(header));
    for (std::size_t at = sizeof(header); at + 8 <= payload.size(); at += 8) {
      const std::uint64_t word = random_();
      std::memcpy(&payload[at], &word, sizeof(word));
    }
    return payload;
  }

  std::mt19937_64 random_;
  std::uint32_t made_ = 0;
};

void stay_on_this_processor() {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &processors);
  EXPECT_EQ(::sched_setaffinity(0, sizeof(processors), &processors), 0);
}

// Compares all but the time.
void expect_same_slots(const Programs& programs, SumsModel& model) {
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    spillway_sum_entry entry = {};
    ASSERT_EQ(::bpf_map_lookup_elem(programs.maps().fd(MapName::kSumSlots), &i, &entry), 0);
    entry.slot.claimed_ns = model.sums().slots()[i].claimed_ns;
    EXPECT_EQ(std::memcmp(&entry.slot, &model.sums().slots()[i], sizeof(entry.slot)), 0) << i;
  }
}

void expect_same_jobs(const Programs& programs, SumsModel& model) {
  for (const spillway_sum_job& job : model.sums().jobs()) {
    if (job.name != 0) {
      const spillway_sum_job other = programs.maps().sum_job(job.row);
      EXPECT_EQ(other.name, job.name);
      EXPECT_EQ(other.held, job.held);
      EXPECT_EQ(other.epoch, job.epoch);
      EXPECT_EQ(std::memcmp(other.members, job.members, sizeof(job.members)), 0);
    }
  }
}

class SwitchSums : public testing::TestWithParam<std::tuple<spillway_sum_policy, Program>> {};

TEST_P(SwitchSums, ComeOutAsTheyDoInCpp) {
  stay_on_this_processor();
  const auto [policy, first] = GetParam();
  const spillway_sum_config config = config_of(policy);
  std::optional<Programs> programs = Programs::load(config, first);
  if (!programs) {
    GTEST_SKIP() << "needs CAP_BPF";
  }
  SumsModel model(config);
  Packets packets(17);
  for (int i = 0; i < kPackets; ++i) {
    const Frame frame = packets.next();
    const Outcome expected = model.pass(frame);
    const Outcome met = programs->pass(frame);
    ASSERT_EQ(met.fate, expected.fate) << "packet " << i;
    if (expected.fate != Fate::kGone) {
      ASSERT_EQ(met.frame, expected.frame) << "packet " << i;
    }
  }
  expect_same_slots(*programs, model);
  expect_same_jobs(*programs, model);
  const spillway_sum_counters counters = programs->maps().sum_counters();
  for (std::size_t i = 0; i < SPILLWAY_SUM_OUTCOMES; ++i) {
    EXPECT_EQ(counters.outcomes[i], model.sums().counters().outcomes[i]) << "outcome " << i;
  }
  EXPECT_EQ(counters.lost_slots, model.sums().counters().lost_slots);
  EXPECT_GT(counters.outcomes[SPILLWAY_SUM_DID_EMIT], 300U);
  EXPECT_GT(counters.outcomes[SPILLWAY_SUM_DID_FLUSH], 50U);
}

INSTANTIATE_TEST_SUITE_P(Policies, SwitchSums,
                         testing::Combine(testing::Values(SPILLWAY_SUM_STATIC,
                                                          SPILLWAY_SUM_FIRST_COME,
                                                          SPILLWAY_SUM_PREEMPTIVE),
                                          testing::Values(Program::kXdp, Program::kForward)));

}  // namespace

}  // namespace spillway::kernel
