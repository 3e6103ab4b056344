// SPDX-License-Identifier: Apache-2.0
//
// Random small worlds for soak tests, and the draws that they are made of.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/units.h"
#include "sim/packet.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/topology.h"

namespace spillway::sim {

// ------------------------------------------------------------------ draws

// Random draws in the forms that soak worlds need. One stream per world; the order of draws is part
// of a seed's meaning.

// Text of several draws. Construct it with braces: they evaluate the draws in order, which function
// arguments do not.
struct OrderedText {
  template <typename... Arguments>
  explicit OrderedText(fmt::format_string<Arguments...> format, Arguments&&... arguments)
      : text(fmt::format(format, std::forward<Arguments>(arguments)...)) {}

  std::string text;
};

class SoakDraw {
 public:
  explicit SoakDraw(std::uint64_t seed) : random_(seed) {}

  bool chance(double probability) { return random_.next_unit() < probability; }

  // From `least` to `most`, both inclusive.
  std::uint64_t between(std::uint64_t least, std::uint64_t most) {
    return least + random_.next_below(most - least + 1);
  }
  // The same, with every doubling equally likely; least > 0. In integers: logarithms may differ
  // between machines.
  std::uint64_t magnitude(std::uint64_t least, std::uint64_t most) {
    const auto doublings = static_cast<unsigned>(std::bit_width(most / least)) - 1;
    const std::uint64_t low = least << between(0, doublings);
    return between(low, std::min(most, 2 * low));
  }
  base::Duration time(base::Duration least, base::Duration most) {
    return base::nanoseconds(static_cast<std::int64_t>(magnitude(
        static_cast<std::uint64_t>(least.count()), static_cast<std::uint64_t>(most.count()))));
  }

  template <typename T>
  T pick(std::initializer_list<T> choices) {
    return *(choices.begin() + random_.next_below(choices.size()));
  }

 private:
  base::RandomSequence random_;
};

// The faults of a soak world, as lines of a scenario: up to six at once, of links and hosts. A cut
// ends, unless the switch at the link's start has another equally short path.

class SoakFaults {
 public:
  // `duration` is about how long the jobs take. Continues the caller's stream of draws.
  SoakFaults(SoakDraw& draw, const scenario::Topology& topology, base::Duration duration,
             base::Duration peer_timeout);

  std::string draw();
  // The end of the last drawn fault that is not permanent.
  base::Instant over() const { return over_; }

 private:
  void add_direction(scenario::NodeId from, scenario::NodeId to);
  std::string draw_one();
  std::string draw_lossy(const std::string& link);
  std::string draw_cut();
  std::string draw_odd(const std::string& link);
  std::string draw_host_fault();
  std::uint64_t draw_clock_lead();  // in microseconds
  std::string draw_span();
  std::string any_link();

  SoakDraw& draw_;
  const scenario::Topology& topology_;
  base::Duration duration_;
  base::Duration peer_timeout_;
  std::vector<std::string> links_;
  std::vector<std::string> detours_;  // links between switches that have an alternative path
  bool has_gray_ = false;             // at most one gray link: the paths around it must work
  base::Instant over_;
};

// Small networks for soak worlds in which all jobs end: one switch, or leaves and spines, and link
// faults that end or let some packets through. Lines of a scenario; pure functions of the draw.

std::string as_text(base::Duration duration);

std::string draw_small_topology(SoakDraw& draw, std::uint32_t hosts, bool is_one_switch);
std::string draw_small_switch(SoakDraw& draw);

// Keeps the lines of SoakFaults that no job dies of: no host faults, and no link that loses
// everything for good.
std::string survivable_faults(std::string_view lines);

// ------------------------------------------------------------------ worlds

// Random small worlds for soak tests: a topology, switches, jobs, background traffic, faults and an
// attacker, all drawn from one seed. A world's scenario is text that `spillway sim run` reads, so
// that a failure can be examined on its own.
//
// Worlds are as hostile as possible while it stays clear what must hold. Queues hold at least a few
// whole packets. No link is cut for good unless there is another path. Everything that a message
// needs to end arrives eventually. A world runs in some 10 ms.

// An attacker on one of the hosts; it has heard everything.
struct AttackPlan {
  HostId host = 0;
  std::uint32_t packets = 0;
  base::Duration gap;  // between two packets
  std::uint64_t seed = 0;
};

struct SoakWorld {
  std::uint64_t seed = 0;
  std::string text;  // of `scenario`, which additionally limits tables
  scenario::Scenario scenario;
  std::optional<AttackPlan> attack;

  // The end of the last fault that is not permanent.
  base::Instant faults_over;
  // A message must end within this time after its start or faults_over, whichever is later.
  base::Duration message_limit;
};

SoakWorld draw_soak_world(std::uint64_t seed);

// Describes the whole world for people.
std::string describe(const SoakWorld& world);

}  // namespace spillway::sim
