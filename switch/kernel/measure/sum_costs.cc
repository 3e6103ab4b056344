// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/measure/program_costs.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "net/system_call.h"
#include "switch/dataplane/port_config.h"
#include "switch/dataplane/sum_frame.h"
#include "switch/kernel/measure/live_switch.h"
#include "switch/kernel/measure/probe_frames.h"
#include "switch/kernel/switch_object.h"

namespace spillway::kernel {

namespace {

constexpr std::uint32_t kSumPort = 0;
constexpr std::uint32_t kSumElsewhere = 2;  // its interface, where no test frames come in

enum class SumFate : std::uint8_t {
  kData,  // no sum: a data packet, forwarded
  kPassBy,
  kDuplicate,
  kClaim,
  kAdd,
  kEmit,
  kEmitAgain,
  kEvict,
  kCollide
};

struct SumCase {
  SumFate fate;
  std::string_view name;
  bool repeats;  // neither frame nor slot changes
};

constexpr std::array<SumCase, 9> kSumCases = {{
    {SumFate::kData, "data of a sum's size: pass", true},
    {SumFate::kPassBy, "sum: pass, of another level", true},
    {SumFate::kDuplicate, "sum: duplicate", true},
    {SumFate::kClaim, "sum: claim", false},
    {SumFate::kAdd, "sum: add", false},
    {SumFate::kEmit, "sum: emit", false},
    {SumFate::kEmitAgain, "sum: emit again", false},
    {SumFate::kEvict, "sum: evict", false},
    {SumFate::kCollide, "sum: pass, slot taken", false},
}};

spillway_sum_image part_of(std::uint16_t chunk, std::uint64_t ranks, std::uint8_t urgency) {
  spillway_sum_image image = {};
  image.fields.common.version_type = SPILLWAY_WIRE_VERSION << 4 | SPILLWAY_TYPE_SUM;
  image.fields.common.job = 1;
  image.fields.common.packet = chunk;
  image.fields.common.source = 1;
  image.fields.kind = SPILLWAY_SUM_PART;
  image.fields.urgency = urgency;
  image.fields.need[0] = 8;
  image.fields.ranks[0] = ranks;
  return image;
}

Frame sum_cost_frame(SumFate fate) {
  spillway_sum_image image = part_of(7, 2, fate == SumFate::kEvict ? 9 : 0);
  image.fields.level = fate == SumFate::kPassBy ? 1 : 0;
  std::vector<std::uint8_t> payload(SPILLWAY_SUM_PACKET, 1);
  if (fate == SumFate::kData) {
    payload = data_payload(SPILLWAY_SUM_PACKET, SPILLWAY_IMPORTANCE_REQUIRED);
  } else {
    std::memcpy(payload.data(), &image, sizeof(image));
  }
  return frame_of({}, payload);
}

// The slot that a packet of this fate finds.
spillway_sum_entry entry_for(SumFate fate) {
  spillway_sum_entry entry = {};
  spillway_sum_slot& slot = entry.slot;
  const bool is_others = fate == SumFate::kEvict || fate == SumFate::kCollide;
  slot.header = part_of(is_others ? 8 : 7, 4, 1);
  if (fate == SumFate::kDuplicate || fate == SumFate::kEmitAgain) {
    slot.header.fields.ranks[0] |= 2;
  } else if (fate == SumFate::kEmit) {
    slot.header.fields.need[0] = 2;
  }
  slot.key = spillway_sum_key_of(&slot.header);
  slot.route.shape = SPILLWAY_ETHERNET_HEADER;
  const Frame frame = sum_cost_frame(SumFate::kEvict);
  std::memcpy(&slot.route.bytes[0], frame.data(), 8);  // to the same receiver
  std::memcpy(&slot.route.bytes[1], frame.data() + 8, 4);
  slot.claimed_ns = ~std::uint64_t{0};  // its lease never ends
  slot.urgency = 1;
  slot.state = fate == SumFate::kClaim       ? SPILLWAY_SUM_EMPTY
               : fate == SumFate::kEmitAgain ? SPILLWAY_SUM_DONE
                                             : SPILLWAY_SUM_BUSY;
  return entry;
}

bool met_sum_fate(SumFate fate, Program program, const ProgramRun& run, const Frame& sent) {
  const bool is_xdp = program == Program::kXdp;
  const bool went_on =
      run.verdict == static_cast<std::uint32_t>(is_xdp ? int{XDP_REDIRECT} : TC_ACT_REDIRECT);
  switch (fate) {
    case SumFate::kData:
    case SumFate::kPassBy:
      return went_on && run.frame == sent;
    case SumFate::kDuplicate:
    case SumFate::kClaim:
    case SumFate::kAdd:
      return run.verdict == static_cast<std::uint32_t>(is_xdp ? int{XDP_DROP} : TC_ACT_SHOT);
    default:
      return went_on && run.frame != sent;
  }
}

// ------------------------------------------------------------------ a switch with one slot

class SumRig {
 public:
  // `program` runs where frames come in: kXdp, or kForward in tc.
  static base::Result<SumRig> make(Program program) {
    const spillway_sum_config config = {.slots = 1,
                                        .lease_us = SPILLWAY_SUM_LEASE_US,
                                        .pools = 1,
                                        .policy = SPILLWAY_SUM_PREEMPTIVE,
                                        .level = 0,
                                        .reserved = {}};
    base::Result<SwitchObject> object = SwitchObject::load({.programs = {program}, .sums = config});
    if (!object.ok()) {
      return object.status();
    }
    base::Result<SwitchMaps> maps = object->maps();
    if (!maps.ok()) {
      return maps.status();
    }
    SumRig rig(std::move(object).value(), std::move(maps).value(), program);
    if (base::Status status = rig.set_up(); !status.ok()) {
      return status;
    }
    return rig;
  }

  base::Status set_slot(const spillway_sum_entry& entry) {
    const std::uint32_t zero = 0;
    return ::bpf_map_update_elem(maps_.fd(MapName::kSumSlots), &zero, &entry, BPF_ANY) == 0
               ? base::Status()
               : net::system_error("write a slot", errno);
  }

  base::Result<double> time_of(SumFate fate, const Frame& frame, std::uint32_t repeat) const {
    const base::Result<ProgramRun> run = run_program(object_.program_fd(program_), frame, repeat);
    if (!run.ok()) {
      return run.status();
    }
    SPILLWAY_CHECK(met_sum_fate(fate, program_, *run, frame));
    return static_cast<double>(run->nanoseconds);
  }

 private:
  SumRig(SwitchObject object, SwitchMaps maps, Program program)
      : object_(std::move(object)), maps_(std::move(maps)), program_(program) {}

  // Sets up a port that is always empty.
  base::Status set_up() {
    spillway_switch_port port = {};
    port.config = dataplane::default_port_config(SPILLWAY_PORT_SPILLWAY);
    port.config.queue_bytes = SPILLWAY_MAX_QUEUE_BYTES / 2;
    port.ifindex = kSumElsewhere;
    port.link.rate = 0xFFFFFFFF;
    spillway_station station = {};
    std::memcpy(station.address, kProbeReceiver, sizeof(kProbeReceiver));
    base::Status status = maps_.write_port(kSumPort, port);
    if (status.ok()) {
      status = maps_.write_station(station, kSumPort);
    }
    return status.ok() ? maps_.write_interface(kSumPort, 1) : status;
  }

  SwitchObject object_;
  SwitchMaps maps_;
  Program program_;
};

// ------------------------------------------------------------------ timing

struct SumTimes {
  std::vector<double> single;  // by round
  std::vector<double> repeated;
};

base::Result<double> single_sum_time(SumRig& rig, const SumCase& one, std::uint32_t runs) {
  const Frame frame = sum_cost_frame(one.fate);
  const spillway_sum_entry entry = entry_for(one.fate);
  std::vector<double> times;
  times.reserve(runs);
  for (std::uint32_t i = 0; i < runs; ++i) {
    if (base::Status status = rig.set_slot(entry); !status.ok()) {
      return status;
    }
    const base::Result<double> time = rig.time_of(one.fate, frame, 1);
    if (!time.ok()) {
      return time.status();
    }
    times.push_back(*time);
  }
  return middle_mean(times);
}

base::Status time_sum_case(SumRig& rig, const SumCase& one, const CostOptions& options,
                           SumTimes& times) {
  const base::Result<double> single = single_sum_time(rig, one, options.single_runs);
  if (!single.ok()) {
    return single.status();
  }
  times.single.push_back(*single);
  if (one.repeats) {
    const base::Result<double> repeated =
        rig.time_of(one.fate, sum_cost_frame(one.fate), options.repeats);
    if (!repeated.ok()) {
      return repeated.status();
    }
    times.repeated.push_back(*repeated);
  }
  return {};
}

// Cases that are measured both ways show what a single run costs extra.
ProgramCost sum_cost(const SumCase& one, const SumTimes& times, const SumTimes& reference) {
  ProgramCost cost{.hook = {}, .fate = std::string(one.name), .single_ns = median(times.single)};
  if (one.repeats) {
    cost.repeated_ns = cost.ns = median(times.repeated);
  } else {
    cost.ns = cost.single_ns - (median(reference.single) - median(reference.repeated));
  }
  return cost;
}

using Step = std::function<void(std::string_view)>;

base::Status measure_programs(Program program, std::string_view hook, const CostOptions& options,
                              const Step& step, std::vector<ProgramCost>& costs) {
  base::Result<SumRig> made = SumRig::make(program);
  if (!made.ok()) {
    return made.status();
  }
  SumRig rig = std::move(made).value();
  std::array<SumTimes, kSumCases.size()> times;
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < kSumCases.size(); ++i) {
      step(kSumCases[i].name);
      if (base::Status status = time_sum_case(rig, kSumCases[i], options, times[i]); !status.ok()) {
        return status;
      }
    }
  }
  const SumTimes& duplicate = times[static_cast<std::size_t>(SumFate::kDuplicate)];
  for (std::size_t i = 0; i < kSumCases.size(); ++i) {
    costs.push_back(sum_cost(kSumCases[i], times[i], duplicate));
    costs.back().hook = hook;
  }
  return {};
}

// ------------------------------------------------------------------ user space

void measure_in_user_space(const CostOptions& options, const Step& step,
                           std::vector<ProgramCost>& costs) {
  const auto measure = [&](const SumCase& one, SumWordsBy words, std::string_view more) {
    step(one.name);
    std::vector<double> rounds;
    for (unsigned round = 0; round < options.rounds; ++round) {
      rounds.push_back(user_sum_ns(sum_cost_frame(one.fate), entry_for(one.fate).slot, words,
                                   options.single_runs));
    }
    const double ns = median(rounds);
    costs.push_back({.hook = "user space",
                     .fate = std::string(one.name).append(more),
                     .single_ns = ns,
                     .ns = ns});
  };
  for (const SumCase& one : kSumCases) {
    measure(one, SumWordsBy::kVectors, "");
    if (one.fate == SumFate::kAdd) {
      measure(one, SumWordsBy::kWords, ", without SIMD");
    }
  }
}

}  // namespace

std::size_t sum_cost_steps(const CostOptions& options) {
  return 2 * options.rounds * kSumCases.size() + kSumCases.size() + 1;
}

base::Result<std::vector<ProgramCost>> measure_sum_costs(const CostOptions& options,
                                                         const Step& step) {
  std::vector<ProgramCost> costs;
  for (const auto& [program, hook] :
       {std::pair(Program::kXdp, "XDP"), std::pair(Program::kForward, "tc")}) {
    if (base::Status status = measure_programs(program, hook, options, step, costs); !status.ok()) {
      return status;
    }
  }
  measure_in_user_space(options, step, costs);
  return costs;
}

namespace {

constexpr spillway_sum_config kUserSums = {.slots = 1,
                                           .lease_us = SPILLWAY_SUM_LEASE_US,
                                           .pools = 1,
                                           .policy = SPILLWAY_SUM_PREEMPTIVE,
                                           .level = 0,
                                           .reserved = {}};
// Copies prepared before the clock is read, few enough to stay in the nearest caches.
constexpr std::size_t kCopies = 8;

// An addition that the compiler cannot vectorize.
void add_word_by_word(__u64* slot, const std::uint8_t* packet) {
  for (std::size_t i = 0; i < SPILLWAY_SUM_WORDS; ++i) {
    __u64 word = spillway_load_sum_word(packet + 8 * i);
    __asm__("" : "+r"(word));
    slot[i] += word;
  }
}

void move_words_by(SumWordsBy words, std::uint8_t move, spillway_sum_slot& slot, std::uint8_t* at) {
  if (words == SumWordsBy::kWords && move == SPILLWAY_SUM_MOVE_ADD) {
    add_word_by_word(slot.words, at);
  } else {
    spillway_move_words(slot.words, at, move);
  }
}

void pass_slot_once(Frame& frame, spillway_sum_slot& slot, spillway_sum_job& job,
                    SumWordsBy words) {
  std::uint8_t* data = frame.data();
  const std::uint8_t* end = data + frame.size();
  const auto bytes = static_cast<std::uint32_t>(frame.size());
  spillway_layout layout;
  spillway_frame seen;
  spillway_sum_image image;
  spillway_sum_frame found;
  spillway_sum_route route;
  spillway_sum_decision decision;
  spillway_read_frame(data, end, bytes, &layout, &seen);
  if ((seen.flags & SPILLWAY_FRAME_SUM) == 0 ||
      spillway_find_sum(data, end, bytes, &layout, &image, &found) == 0 ||
      spillway_read_route(data, end, &layout, &route) == 0 ||
      spillway_screen_sum(&kUserSums, &image, found.has_words, &decision) == 0) {
    return;
  }
  spillway_learn_member(&job, &image, &route, 0);
  const spillway_sum_key key = spillway_sum_key_of(&image);
  spillway_decide_sum(&kUserSums, &job, &key, 0, &slot, &image, &route, &decision);
  move_words_by(words, decision.move, slot, spillway_sum_words_in(data, end, &layout));
  if (decision.action == SPILLWAY_SUM_SWAP) {
    spillway_write_route(data, end, &layout, &route);
  }
  if (decision.is_changed != 0) {
    spillway_write_sum(data, end, &layout, &image);
  }
}

}  // namespace

double user_sum_ns(const Frame& frame, const spillway_sum_slot& slot, SumWordsBy words,
                   std::uint32_t runs) {
  const base::MonotonicClock clock;
  std::vector<spillway_sum_job> jobs(1);  // too large for a stack
  std::vector<Frame> frames(kCopies, frame);
  std::vector<spillway_sum_slot> slots(kCopies, slot);
  std::vector<double> times;
  for (std::uint32_t run = 0; run < std::max<std::uint32_t>(runs / kCopies, 4); ++run) {
    std::ranges::fill(slots, slot);
    for (Frame& copy : frames) {
      std::ranges::copy(frame, copy.begin());
    }
    const base::Instant start = clock.now();
    for (std::size_t i = 0; i < kCopies; ++i) {
      pass_slot_once(frames[i], slots[i], jobs.front(), words);
    }
    times.push_back(static_cast<double>((clock.now() - start).count()) / kCopies);
  }
  return middle_mean(times);
}

}  // namespace spillway::kernel
