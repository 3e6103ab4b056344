// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/topology_text.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/units_text.h"

namespace spillway::scenario {
namespace {

using Words = std::vector<std::string_view>;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

Words split_words(std::string_view line) {
  Words words;
  line = line.substr(0, line.find('#'));
  std::size_t at = 0;
  while (at < line.size()) {
    if (is_space(line[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && !is_space(line[end])) {
      ++end;
    }
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

class TopologyReader {
 public:
  base::Status read_line(std::string_view line) {
    const Words words = split_words(line);
    if (words.empty()) {
      return {};
    }
    if (words[0] == "host" || words[0] == "switch") {
      return read_node(words);
    }
    if (words[0] == "link") {
      return read_link(words);
    }
    return base::invalid_argument(
        fmt::format("\"{}\" is not known; lines begin with host, switch or link", words[0]));
  }

  // Assigns node numbers, which requires knowing all hosts.
  Topology finish() && {
    for (Link& link : topology_.links) {
      link.a = number(nodes_[link.a]);
      link.b = number(nodes_[link.b]);
    }
    return std::move(topology_);
  }

 private:
  struct Node {
    bool is_host = false;
    std::uint32_t index = 0;  // among hosts or switches
  };

  NodeId number(const Node& node) const {
    return node.is_host ? node.index : topology_.hosts() + node.index;
  }

  base::Status read_node(const Words& words) {
    if (words.size() != 2) {
      return base::invalid_argument(fmt::format("{} takes one name", words[0]));
    }
    const auto position = static_cast<std::uint32_t>(nodes_.size());
    if (!positions_.emplace(std::string(words[1]), position).second) {
      return base::invalid_argument(fmt::format("{} is declared twice", words[1]));
    }
    const bool is_host = words[0] == "host";
    std::vector<std::string>& names = is_host ? topology_.host_names : topology_.switch_names;
    nodes_.push_back({is_host, static_cast<std::uint32_t>(names.size())});
    names.emplace_back(words[1]);
    return {};
  }

  base::Status read_end(std::string_view name, NodeId& end) const {
    const auto found = positions_.find(name);
    if (found == positions_.end()) {
      return base::invalid_argument(
          fmt::format("{} is not declared; put `host {}` or `switch {}` above", name, name, name));
    }
    end = found->second;
    return {};
  }

  base::Status read_link(const Words& words) {
    if (words.size() < 3) {
      return base::invalid_argument("link takes two names, then rate=, delay= and buffer=");
    }
    Link link;
    base::Status status = read_end(words[1], link.a);
    if (status.ok()) {
      status = read_end(words[2], link.b);
    }
    for (std::size_t i = 3; status.ok() && i < words.size(); ++i) {
      status = read_value(words[i], link);
    }
    topology_.links.push_back(link);
    return status;
  }

  static base::Status read_value(std::string_view word, Link& link) {
    const std::size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
    if (key == "rate") {
      return store(base::parse_rate(value), link.rate);
    }
    if (key == "delay") {
      return store(base::parse_duration(value), link.delay);
    }
    if (key == "buffer") {
      return read_buffer(value, link);
    }
    return base::invalid_argument(
        fmt::format("\"{}\" is not known; a link has rate=, delay= and buffer=", key));
  }

  static base::Status read_buffer(std::string_view value, Link& link) {
    base::Bytes size;
    const base::Status status = store(base::parse_bytes(value), size);
    if (status.ok() && (size.count() < 1 || size.count() > SPILLWAY_MAX_QUEUE_BYTES)) {
      return base::invalid_argument(fmt::format("a buffer of {} is not from 1 byte to {} bytes",
                                                value, SPILLWAY_MAX_QUEUE_BYTES));
    }
    if (status.ok()) {
      link.port = with_buffer(link.port, static_cast<std::uint32_t>(size.count()));
      link.own_buffer = true;
    }
    return status;
  }

  template <typename T>
  static base::Status store(const base::Result<T>& parsed, T& out) {
    if (!parsed.ok()) {
      return parsed.status();
    }
    out = *parsed;
    return {};
  }

  Topology topology_;  // links' ends index nodes_ until finish()
  std::vector<Node> nodes_;
  std::map<std::string, std::uint32_t, std::less<>> positions_;
};

}  // namespace

base::Result<Topology> parse_topology(std::string_view text) {
  TopologyReader reader;
  for (std::uint32_t line = 1; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    const base::Status status = reader.read_line(text.substr(0, end));
    if (!status.ok()) {
      return base::invalid_argument(fmt::format("line {}: {}", line, status.message()));
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  Topology topology = std::move(reader).finish();
  const base::Status status = validate(topology);
  if (!status.ok()) {
    return status;
  }
  return topology;
}

}  // namespace spillway::scenario
