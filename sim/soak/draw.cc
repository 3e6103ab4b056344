// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/world.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::sim {

// ------------------------------------------------------------------ faults

namespace {

constexpr std::uint64_t kMaxFaults = 6;
// With per-packet spreading, a sender whose packets come in pairs may always lose the same one of
// each pair if a link loses everything.
constexpr std::uint64_t kMaxGrayPercent = 80;

}  // namespace

SoakFaults::SoakFaults(SoakDraw& draw, const scenario::Topology& topology, base::Duration duration,
                       base::Duration peer_timeout)
    : draw_(draw), topology_(topology), duration_(duration), peer_timeout_(peer_timeout) {
  for (const scenario::Link& link : topology.links) {
    add_direction(link.a, link.b);
    add_direction(link.b, link.a);
  }
}

void SoakFaults::add_direction(scenario::NodeId from, scenario::NodeId to) {
  const std::string name =
      fmt::format("{}->{}", topology_.node_name(from), topology_.node_name(to));
  links_.push_back(name);
  // A switch with hosts and several links to other switches has another path to any of them.
  std::uint32_t hosts = 0;
  std::uint32_t switches = 0;
  for (const scenario::Link& link : topology_.links) {
    if (link.a == from || link.b == from) {
      const scenario::NodeId other = link.a == from ? link.b : link.a;
      ++(other < topology_.hosts() ? hosts : switches);
    }
  }
  if (from >= topology_.hosts() && to >= topology_.hosts() && hosts > 0 && switches > 1) {
    detours_.push_back(name);
  }
}

std::string SoakFaults::draw() {
  std::string text;
  for (std::uint64_t left = draw_.between(0, kMaxFaults); left > 0; --left) {
    text += "fault " + draw_one() + "\n";
  }
  return text;
}

std::string SoakFaults::any_link() {
  return links_[draw_.between(0, links_.size() - 1)];
}

std::string SoakFaults::draw_one() {
  switch (draw_.between(0, 3)) {
    case 0:
      return draw_lossy(any_link());
    case 1:
      return draw_cut();
    case 2:
      return draw_odd(any_link());
    default:
      return draw_host_fault();
  }
}

// Always, or for a while.
std::string SoakFaults::draw_span() {
  if (draw_.chance(0.5)) {
    return "";
  }
  const base::Duration from = base::nanoseconds(
      static_cast<std::int64_t>(draw_.between(0, static_cast<std::uint64_t>(duration_.count()))));
  const base::Duration until =
      from + draw_.time(base::microseconds(1), std::max(duration_ * 4, base::milliseconds(1)));
  over_ = std::max(over_, base::Instant(until));
  return fmt::format(" from={}ns until={}ns", from.count(), until.count());
}

std::string SoakFaults::draw_lossy(const std::string& link) {
  const double percent = static_cast<double>(draw_.magnitude(10, 3000)) / 100.0;
  if (draw_.chance(0.5)) {
    return OrderedText{"kind=loss link={} share={}%{}", link, percent, draw_span()}.text;
  }
  return OrderedText{"kind=bursty link={} share={}% burst={}{}", link, percent,
                     draw_.between(2, 50), draw_span()}
      .text;
}

std::string SoakFaults::draw_cut() {
  if (!detours_.empty() && !has_gray_ && draw_.chance(0.6)) {
    has_gray_ = true;
    const std::string& link = detours_[draw_.between(0, detours_.size() - 1)];
    const bool is_dead = topology_.spreading == scenario::Spreading::kPerFlow && draw_.chance(0.5);
    return OrderedText{"kind=gray link={} share={}%", link,
                       is_dead ? 100 : draw_.between(2, kMaxGrayPercent)}
        .text;
  }
  const base::Duration from = base::nanoseconds(
      static_cast<std::int64_t>(draw_.between(0, static_cast<std::uint64_t>(duration_.count()))));
  const base::Duration most =
      draw_.chance(0.5) ? duration_ + base::microseconds(20) : peer_timeout_ * 2;
  const base::Duration until = from + draw_.time(base::microseconds(10), most);
  over_ = std::max(over_, base::Instant(until));
  return fmt::format("kind=down link={} from={}ns until={}ns", any_link(), from.count(),
                     until.count());
}

std::string SoakFaults::draw_odd(const std::string& link) {
  const std::uint64_t percent = draw_.magnitude(1, 40);
  switch (draw_.between(0, 2)) {
    case 0:
      return OrderedText{"kind=duplicate link={} share={}%{}", link, percent, draw_span()}.text;
    case 1:
      return OrderedText{"kind=reorder link={} share={}% delay={}us{}", link, percent,
                         draw_.magnitude(1, 500), draw_span()}
          .text;
    default:
      return OrderedText{"kind=corrupt link={} share={}%{}", link, draw_.magnitude(1, 20),
                         draw_span()}
          .text;
  }
}

std::string SoakFaults::draw_host_fault() {
  const std::uint64_t host = draw_.between(0, topology_.hosts() - 1);
  if (draw_.chance(0.5)) {
    const std::uint64_t from = draw_.between(0, static_cast<std::uint64_t>(duration_.count()));
    return fmt::format("kind=host-death host={} from={}ns", host, from);
  }
  const auto ppm = static_cast<std::int64_t>(draw_.magnitude(1, 5000));
  return OrderedText{"kind=skew host={} ppm={} delay={}us", host, draw_.chance(0.5) ? ppm : -ppm,
                     draw_clock_lead()}
      .text;
}

// Packets carry 32 bits of microseconds: a lead anywhere in two rounds of that clock, or one that
// makes it wrap during the run.
std::uint64_t SoakFaults::draw_clock_lead() {
  constexpr std::uint64_t kRound = std::uint64_t{1} << 32;
  if (draw_.chance(0.5)) {
    return draw_.between(0, 2 * kRound);
  }
  return kRound - draw_.between(0, static_cast<std::uint64_t>(duration_.count()) / 1000);
}

// ------------------------------------------------------------------ small networks

namespace {

bool passes(std::string_view line) {
  return line.find("host=") == std::string_view::npos &&
         !(line.find("kind=gray") != std::string_view::npos &&
           line.find("share=100%") != std::string_view::npos);
}

}  // namespace

std::string as_text(base::Duration duration) {
  return fmt::format("{}ns", duration.count());
}

std::string draw_small_topology(SoakDraw& draw, std::uint32_t hosts, bool is_one_switch) {
  const std::string link =
      OrderedText{"rate={}gbit delay={} spreading={}", draw.pick<std::uint32_t>({1, 10, 100}),
                  as_text(draw.time(base::nanoseconds(100), base::microseconds(20))),
                  draw.pick<std::string_view>({"flow", "packet"})}
          .text;
  if (is_one_switch) {
    return fmt::format("topology one-switch hosts={} {}\n", hosts, link);
  }
  return OrderedText{"topology leaf-spine hosts={} leaves={} spines={} {}\n", hosts,
                     draw.between(2, 3), draw.between(1, 2), link}
      .text;
}

std::string draw_small_switch(SoakDraw& draw) {
  const std::uint64_t queue = draw.magnitude(8'000, 500'000);
  const auto mode =
      draw.pick<std::string_view>({"drop-tail", "ecn", "trim", "spillway", "spillway"});
  if (mode == "drop-tail") {
    return fmt::format("switch mode=drop-tail queue={}\n", queue);
  }
  if (mode == "ecn") {
    return fmt::format("switch mode=ecn queue={} ecn={}\n", queue, queue / 4);
  }
  return OrderedText{"switch mode={} queue={} ecn={} early-drop=0 trim={}\n", mode, queue,
                     draw.between(queue / 8, queue), draw.pick<std::uint32_t>({206, 256})}
      .text;
}

std::string survivable_faults(std::string_view lines) {
  std::string kept;
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n') + 1;
    kept += passes(lines.substr(0, end)) ? lines.substr(0, end) : std::string_view();
    lines.remove_prefix(end);
  }
  return kept;
}

}  // namespace spillway::sim
