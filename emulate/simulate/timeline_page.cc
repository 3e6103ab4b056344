// SPDX-License-Identifier: Apache-2.0
#include "emulate/simulate/graph_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/plot/svg_chart.h"

namespace spillway::emulate {
namespace {

constexpr double kWidth = 1400.0;
constexpr double kLeft = 70.0;
constexpr double kRow = 22.0;
constexpr std::size_t kMaxPathRows = 200;
constexpr std::size_t kMaxNameBytes = 60;

struct Bar {
  NodePlace place;
  base::Duration length;
  bool is_on_path = false;
};

std::vector<Bar> bars_of(const GraphRunResult& result, const std::vector<NodePlace>& path) {
  std::vector<std::vector<bool>> on_path(std::min(result.times.size(), kMaxRows));
  for (std::size_t rank = 0; rank < on_path.size(); ++rank) {
    on_path[rank].assign(result.times[rank].size(), false);
  }
  for (const NodePlace place : path) {
    if (place.rank < on_path.size()) {
      on_path[place.rank][place.node] = true;
    }
  }
  std::vector<Bar> bars;
  for (std::uint32_t rank = 0; rank < on_path.size(); ++rank) {
    for (NodeIndex node = 0; node < result.times[rank].size(); ++node) {
      const NodeTimes& times = result.times[rank][node];
      if (times.ended > times.began) {
        bars.push_back({{rank, node}, times.ended - times.began, on_path[rank][node]});
      }
    }
  }
  if (bars.size() > kMaxBars) {
    std::nth_element(bars.begin(), bars.begin() + kMaxBars, bars.end(),
                     [](const Bar& a, const Bar& b) { return a.length > b.length; });
    bars.resize(kMaxBars);
  }
  return bars;
}

const char* colour_of(const Bar& bar, const GraphNode& node) {
  if (bar.is_on_path) {
    return plot::chart_colour(1);
  }
  return plot::chart_colour(node.communicates() ? 2 : 0);
}

std::string svg_of_bars(const World& world, const GraphRunResult& result,
                        const std::vector<Bar>& bars) {
  const std::size_t rows = std::min(result.times.size(), kMaxRows);
  const double all = std::max<double>(1.0, static_cast<double>(result.ended.since_zero().count()));
  const double scale = (kWidth - kLeft) / all;
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" width=\"100%\" role=\"img\">\n", kWidth,
                                kRow * static_cast<double>(rows) + 24);
  for (std::size_t rank = 0; rank < rows; ++rank) {
    svg += fmt::format("<text x=\"4\" y=\"{}\" class=\"label\">rank {}</text>\n",
                       kRow * static_cast<double>(rank) + 15, rank);
  }
  for (const Bar& bar : bars) {
    const GraphNode& node = world.ranks[bar.place.rank].nodes[bar.place.node];
    const NodeTimes& times = result.times[bar.place.rank][bar.place.node];
    // Communication in the lower half of the row, computing in the upper.
    const double y = kRow * bar.place.rank + (node.communicates() ? 11 : 2);
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"8\" fill=\"{}\"><title>{}, "
        "{:.1f} us "
        "to {:.1f} us</title></rect>\n",
        kLeft + scale * static_cast<double>(times.began.since_zero().count()), y,
        std::max(0.5, scale * static_cast<double>(bar.length.count())), colour_of(bar, node),
        plot::html_escape(node_text(world, bar.place)),
        base::microseconds_of(times.began.since_zero()),
        base::microseconds_of(times.ended.since_zero()));
  }
  return svg + "</svg>\n";
}

std::string path_table(const World& world, const GraphRunResult& result,
                       const std::vector<NodePlace>& path) {
  std::string rows;
  for (std::size_t i = 0; i < std::min(path.size(), kMaxPathRows); ++i) {
    const NodeTimes& times = result.times[path[i].rank][path[i].node];
    rows +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</td></tr>\n",
                    path[i].rank, world.ranks[path[i].rank].nodes[path[i].node].id,
                    plot::html_escape(node_text(world, path[i])),
                    base::microseconds_of(times.began.since_zero()),
                    base::microseconds_of(times.ended - times.began));
  }
  return fmt::format(
      "<h2>Critical path: {} nodes{}</h2>\n<table><tr><th>rank</th><th>node</th><th>what</th>"
      "<th>began, us</th><th>took, us</th></tr>\n{}</table>\n",
      path.size(), path.size() > kMaxPathRows ? fmt::format(", the first {}", kMaxPathRows) : "",
      rows);
}

}  // namespace

std::vector<NodePlace> critical_path(const GraphRunResult& result) {
  std::vector<NodePlace> path;
  NodePlace at = kNowhere;
  base::Instant latest{};
  for (std::uint32_t rank = 0; rank < result.times.size(); ++rank) {
    for (NodeIndex node = 0; node < result.times[rank].size(); ++node) {
      if (result.times[rank][node].ended > latest || at.rank == kNowhere.rank) {
        latest = result.times[rank][node].ended;
        at = {rank, node};
      }
    }
  }
  while (at.rank != kNowhere.rank) {
    path.push_back(at);
    at = result.times[at.rank][at.node].after;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::string node_text(const World& world, NodePlace place) {
  const RankGraph& rank = world.ranks[place.rank];
  const GraphNode& node = rank.nodes[place.node];
  std::string text = node.kind == NodeKind::kCollective && node.has_collective
                         ? collective_kind_name(node.collective)
                         : node_kind_name(node.kind);
  if (node.has_bytes) {
    text += fmt::format(" of {} bytes", node.bytes);
  }
  if (!rank.names.empty() && !rank.names[place.node].empty()) {
    text += fmt::format(" '{}'", rank.names[place.node].substr(0, kMaxNameBytes));
  }
  return text;
}

std::string timeline_page(const std::string& title, const World& world,
                          const GraphRunResult& result) {
  const std::vector<NodePlace> path = critical_path(result);
  const std::vector<Bar> bars = bars_of(result, path);
  const std::string escaped = plot::html_escape(title);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n"
      "<style>body{{font:14px sans-serif;margin:2em;color-scheme:light dark}}"
      "td,th{{padding:2px 10px;text-align:left}}.label{{font-size:12px;fill:currentColor}}"
      "rect{{opacity:.85}}</style></head>\n<body><h1>{}</h1>\n"
      "<p>{} ranks, {} nodes, {:.3f} ms. Upper half of a row: computing; lower: communication; "
      "the critical path has a colour of its own. {} of {} ranks and {} bars are drawn.</p>\n{}{}"
      "</body></html>\n",
      escaped, escaped, world.size(), world.nodes(),
      base::microseconds_of(result.ended.since_zero()) / 1000.0,
      std::min<std::size_t>(world.size(), kMaxRows), world.size(), bars.size(),
      svg_of_bars(world, result, bars), path_table(world, result, path));
}

}  // namespace spillway::emulate
