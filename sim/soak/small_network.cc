// SPDX-License-Identifier: Apache-2.0
#include "sim/soak/small_network.h"

#include <fmt/format.h>

namespace spillway::sim {
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

std::string passing_faults(std::string_view lines) {
  std::string kept;
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n') + 1;
    kept += passes(lines.substr(0, end)) ? lines.substr(0, end) : std::string_view();
    lines.remove_prefix(end);
  }
  return kept;
}

}  // namespace spillway::sim
