// SPDX-License-Identifier: Apache-2.0
#include "switch/kernel/measure/program_costs.h"

#include <bpf/bpf.h>
#include <fmt/format.h>
#include <linux/pkt_cls.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "net/system_call.h"
#include "switch/dataplane/port_config.h"
#include "switch/kernel/host_fixup.h"
#include "switch/kernel/measure/live_switch.h"
#include "switch/kernel/measure/probe_frames.h"
#include "switch/kernel/switch_object.h"

namespace spillway::kernel {
namespace {

constexpr std::uint32_t kLoopback = 1;   // `lo`, where test runs say that frames come in
constexpr std::uint32_t kElsewhere = 2;  // the port's interface: frames must not go back to
                                         // kLoopback
constexpr std::uint32_t kPort = 0;
constexpr std::uint8_t kPriority = 1;
constexpr std::uint8_t kDscp = 9;  // maps to that priority

enum class Fate : std::uint8_t {
  kNothing,  // a no-op program
  kPass,
  kMark,
  kTrim,
  kDropEarly,
  kDropFull,
  kUntouched,
  kFixup,
  kNoFixup
};

struct Case {
  Fate fate = Fate::kPass;
  bool is_xdp = true;
  bool is_ipv6 = false;
  std::uint32_t trim_bytes = SPILLWAY_MAX_TRIM_BYTES;  // length of trimmed frames

  bool keeps_frame() const {
    return fate != Fate::kMark && fate != Fate::kTrim && fate != Fate::kFixup;
  }
};

std::string fate_name(const Case& one) {
  switch (one.fate) {
    case Fate::kNothing:
      return "empty program";
    case Fate::kPass:
      return "pass";
    case Fate::kMark:
      return "mark";
    case Fate::kTrim:
      return fmt::format("trim to {}", one.trim_bytes);
    case Fate::kDropEarly:
      return "drop early";
    case Fate::kDropFull:
      return "drop, queues full";
    case Fate::kUntouched:
      return "not Spillway's";
    case Fate::kFixup:
      return fmt::format("fix-up of {}", one.trim_bytes);
    case Fate::kNoFixup:
      break;
  }
  return "fix-up, nothing to do";
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const bool is_xdp : {true, false}) {
    for (const bool is_ipv6 : {false, true}) {
      for (const Fate fate : {Fate::kNothing, Fate::kPass, Fate::kMark, Fate::kDropEarly,
                              Fate::kDropFull, Fate::kUntouched}) {
        cases.push_back({.fate = fate, .is_xdp = is_xdp, .is_ipv6 = is_ipv6});
      }
      for (const std::uint32_t trim_bytes : {206U, 256U}) {
        cases.push_back({Fate::kTrim, is_xdp, is_ipv6, trim_bytes});
      }
      if (is_xdp) {
        cases.push_back({Fate::kNoFixup, is_xdp, is_ipv6});
        cases.push_back({Fate::kFixup, is_xdp, is_ipv6, 206});
      }
    }
  }
  return cases;
}

// ------------------------------------------------------------------ state of a port

struct PortState {
  spillway_switch_port switch_port = {};
  spillway_virtual_port port = {};
};

void fill(spillway_virtual_port& port, unsigned queue, std::uint32_t bytes) {
  port.state.bytes[queue] = bytes;
  port.state.occupied |= 1U << queue;
}

// The port models time as always: the link is so fast that the queues are empty, or so slow that
// they stay full.
PortState state_for(const Case& one) {
  constexpr std::uint32_t kFastest = 0xFFFFFFFF;
  constexpr std::uint32_t kSlowest = 1;
  constexpr std::uint32_t kQueue = 1U << 27;
  PortState state;
  spillway_port_config& config = state.switch_port.config;
  config = dataplane::default_port_config(SPILLWAY_PORT_SPILLWAY);
  config.queue_bytes = kQueue;
  config.control_queue_bytes = SPILLWAY_MAX_QUEUE_BYTES;
  config.early_drop_bytes = one.fate == Fate::kDropEarly ? kQueue / 4 : 0;
  config.trim_bytes = one.trim_bytes;
  state.switch_port.ifindex = kElsewhere;
  state.switch_port.link.rate = one.fate == Fate::kPass ? kFastest : kSlowest;
  switch (one.fate) {
    case Fate::kMark:
      config.queue_bytes = SPILLWAY_MAX_QUEUE_BYTES;
      fill(state.port, kPriority, 1U << 20);
      break;
    case Fate::kDropEarly:
      fill(state.port, kPriority, kQueue / 2);
      break;
    case Fate::kDropFull:
      fill(state.port, SPILLWAY_CONTROL_QUEUE, SPILLWAY_MAX_QUEUE_BYTES);
      [[fallthrough]];
    case Fate::kTrim:
      fill(state.port, kPriority, kQueue);
      break;
    default:
      break;
  }
  return state;
}

Frame frame_for(const Case& one, std::uint32_t bytes) {
  const std::uint8_t ecn = one.fate == Fate::kDropEarly ? SPILLWAY_ECN_NOT_ECT : SPILLWAY_ECN_ECT0;
  const std::uint8_t importance = one.fate == Fate::kDropEarly ? 0 : SPILLWAY_IMPORTANCE_REQUIRED;
  const FrameShape shape{.is_ipv6 = one.is_ipv6,
                         .traffic_class = static_cast<std::uint8_t>(kDscp << 2 | ecn)};
  Frame frame = data_frame(shape, bytes, importance);
  if (one.fate == Fate::kUntouched) {
    frame = frame_of(shape, std::vector<std::uint8_t>(bytes - frame_of(shape, {}).size()));
  } else if (one.fate == Fate::kFixup) {
    frame.resize(one.trim_bytes);  // its lengths are still the original ones
  }
  return frame;
}

// ------------------------------------------------------------------ timing

struct Loaded {
  SwitchObject object;
  SwitchMaps maps;
  ProbePrograms probes;
  net::UniqueFd fixup;

  int fd_for(const Case& one) const {
    switch (one.fate) {
      case Fate::kNothing:
        return probes.fd(one.is_xdp ? Probe::kPassXdp : Probe::kPassTc);
      case Fate::kFixup:
      case Fate::kNoFixup:
        return fixup.get();
      default:
        return object.program_fd(one.is_xdp ? Program::kXdp : Program::kAdmit);
    }
  }
};

base::Result<Loaded> load_programs() {
  base::Result<SwitchObject> object =
      SwitchObject::load({.programs = {Program::kXdp, Program::kAdmit}});
  if (!object.ok()) {
    return object.status();
  }
  base::Result<SwitchMaps> maps = object->maps();
  if (!maps.ok()) {
    return maps.status();
  }
  base::Result<ProbePrograms> probes = ProbePrograms::load();
  if (!probes.ok()) {
    return probes.status();
  }
  base::Result<net::UniqueFd> fixup = load_fixup();
  if (!fixup.ok()) {
    return fixup.status();
  }
  return Loaded{std::move(object).value(), std::move(maps).value(), std::move(probes).value(),
                std::move(fixup).value()};
}

// Sets up the path to the port, for frames of either hook.
base::Status set_up_path(SwitchMaps& maps) {
  spillway_station station = {};
  std::memcpy(station.address, kProbeReceiver, sizeof(kProbeReceiver));
  base::Status status = maps.write_station(station, kPort);
  return status.ok() ? maps.write_interface(kPort, kLoopback) : status;
}

base::Status set_up_port(Loaded& loaded, const Case& one) {
  const PortState state = state_for(one);
  const spillway_port_slot slot = {.lock = {}, .reserved = 0, .port = state.port};
  if (::bpf_map_update_elem(loaded.maps.fd(MapName::kSlots), &kPort, &slot, BPF_ANY) != 0) {
    return net::system_error("write the state of a port", errno);
  }
  return loaded.maps.write_port(kPort, state.switch_port);
}

// True if the frame met the fate that is being timed.
bool met(const Case& one, const ProgramRun& run, const Frame& sent) {
  const std::uint32_t drop = one.is_xdp ? std::uint32_t{XDP_DROP} : std::uint32_t{TC_ACT_SHOT};
  switch (one.fate) {
    case Fate::kDropEarly:
    case Fate::kDropFull:
      return run.verdict == drop;
    case Fate::kTrim:
      return run.frame.size() == one.trim_bytes;
    case Fate::kMark:
    case Fate::kFixup:
      return run.verdict != drop && run.frame.size() == sent.size() && run.frame != sent;
    default:
      return run.verdict != drop && run.frame == sent;
  }
}

base::Result<double> time_of(Loaded& loaded, const Case& one, const Frame& frame,
                             std::uint32_t repeat) {
  const base::Result<ProgramRun> run = run_program(loaded.fd_for(one), frame, repeat);
  if (!run.ok()) {
    return run.status();
  }
  SPILLWAY_CHECK(met(one, *run, frame));
  return static_cast<double>(run->nanoseconds);
}

base::Result<double> time_of_singles(Loaded& loaded, const Case& one, const Frame& frame,
                                     std::uint32_t runs) {
  std::vector<double> times;
  times.reserve(runs);
  for (std::uint32_t i = 0; i < runs; ++i) {
    const base::Result<double> time = time_of(loaded, one, frame, 1);
    if (!time.ok()) {
      return time.status();
    }
    times.push_back(*time);
  }
  return middle_mean(times);
}

struct Times {
  std::vector<double> single;  // by round
  std::vector<double> repeated;
};

base::Status measure(Loaded& loaded, const Case& one, const CostOptions& options, Times& times) {
  if (base::Status status = set_up_port(loaded, one); !status.ok()) {
    return status;
  }
  const Frame frame = frame_for(one, options.frame_bytes);
  const base::Result<double> single = time_of_singles(loaded, one, frame, options.single_runs);
  if (!single.ok()) {
    return single.status();
  }
  times.single.push_back(*single);
  if (one.keeps_frame()) {
    const base::Result<double> repeated = time_of(loaded, one, frame, options.repeats);
    if (!repeated.ok()) {
      return repeated.status();
    }
    times.repeated.push_back(*repeated);
  }
  return {};
}

// Extra cost of a single run over a repeated one, per round, for the same program.
std::vector<double> extra_of_singles(const std::vector<Case>& cases, const std::vector<Times>& all,
                                     const Case& like) {
  const Fate reference = like.fate == Fate::kFixup ? Fate::kNoFixup : Fate::kPass;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].fate == reference && cases[i].is_xdp == like.is_xdp &&
        cases[i].is_ipv6 == like.is_ipv6) {
      std::vector<double> extra(all[i].single);
      std::ranges::transform(extra, all[i].repeated, extra.begin(), std::minus<>());
      return extra;
    }
  }
  return {};
}

ProgramCost cost_of(const Case& one, const Times& times, const std::vector<double>& extra) {
  ProgramCost cost{.hook = one.is_xdp ? "XDP" : "tc",
                   .fate = fate_name(one),
                   .is_ipv6 = one.is_ipv6,
                   .single_ns = median(times.single)};
  if (one.keeps_frame()) {
    cost.repeated_ns = cost.ns = median(times.repeated);
    return cost;
  }
  std::vector<double> corrected(times.single);
  std::ranges::transform(corrected, extra, corrected.begin(), std::minus<>());
  cost.ns = median(corrected);
  return cost;
}

}  // namespace

std::size_t cost_steps(const CostOptions& options) {
  return options.rounds * all_cases().size();
}

base::Result<std::vector<ProgramCost>> measure_program_costs(
    const CostOptions& options, const std::function<void(std::string_view)>& step) {
  base::Result<Loaded> result = load_programs();
  if (!result.ok()) {
    return result.status();
  }
  Loaded loaded = std::move(result).value();
  if (base::Status status = set_up_path(loaded.maps); !status.ok()) {
    return status;
  }
  const std::vector<Case> cases = all_cases();
  std::vector<Times> times(cases.size());
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      step(fate_name(cases[i]));
      if (base::Status status = measure(loaded, cases[i], options, times[i]); !status.ok()) {
        return status;
      }
    }
  }
  std::vector<ProgramCost> costs;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    costs.push_back(cost_of(cases[i], times[i], extra_of_singles(cases, times, cases[i])));
  }
  return costs;
}

}  // namespace spillway::kernel
