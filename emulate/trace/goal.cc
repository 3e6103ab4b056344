// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>
#include <unordered_map>
#include <utility>

#include "emulate/trace/text_lines.h"
#include "emulate/trace/text_traces.h"

namespace spillway::emulate {
namespace {

using Words = std::vector<std::string_view>;

// Keeps one rank's statements until its block ends, because "requires" may follow both.
class GoalReader {
 public:
  explicit GoalReader(NodeSink& sink) : sink_(sink) {}

  base::Status read(std::string_view text);

 private:
  base::Status line(const Words& words);
  base::Status statement(const Words& words);
  base::Status send_or_receive(const Words& words, NodeKind kind);
  base::Status requirement(const Words& words);
  base::Status begin_rank(const Words& words);
  base::Status end_rank();
  std::optional<std::uint64_t> id_of(std::string_view label) const {
    const auto found = labels_.find(std::string(label));
    return found == labels_.end() ? std::nullopt : std::optional(found->second);
  }
  base::Status wrong(const std::string& what) const {
    return {base::StatusCode::kMalformed, fmt::format("line {}: {}", number_, what)};
  }

  NodeSink& sink_;
  std::size_t number_ = 0;
  std::optional<std::uint32_t> world_;
  std::optional<std::uint32_t> rank_;
  std::vector<Node> nodes_;
  std::unordered_map<std::string, std::uint64_t> labels_;
};

base::Status GoalReader::read(std::string_view text) {
  TextLines lines(text);
  std::string_view line_text;
  Words words;
  while (lines.next(line_text)) {
    number_ = lines.number();
    split_words(line_text.substr(0, line_text.find_first_of("#/")), words);
    if (words.empty()) {
      continue;
    }
    if (base::Status status = line(words); !status.ok()) {
      return status;
    }
  }
  if (!world_ || rank_) {
    return wrong(rank_ ? "the text ends inside a rank's block" : "there is no 'num_ranks N'");
  }
  return {};
}

base::Status GoalReader::line(const Words& words) {
  if (words[0] == "num_ranks" && words.size() == 2) {
    world_ = whole_number<std::uint32_t>(words[1]);
    return world_ && *world_ >= 1 && *world_ <= kMaxTraceRanks
               ? base::Status()
               : wrong(fmt::format("num_ranks must be 1 to {}", kMaxTraceRanks));
  }
  if (words[0] == "rank") {
    return begin_rank(words);
  }
  if (!rank_) {
    return wrong(fmt::format("'{}' outside of a rank's block", words[0]));
  }
  if (words[0] == "}") {
    return end_rank();
  }
  if (words.size() == 3 && (words[1] == "requires" || words[1] == "irequires")) {
    return requirement(words);
  }
  return statement(words);
}

base::Status GoalReader::begin_rank(const Words& words) {
  const auto rank = words.size() >= 2 ? whole_number<std::uint32_t>(words[1]) : std::nullopt;
  if (rank_ || !world_ || !rank || *rank >= *world_ || words.size() != 3 || words[2] != "{") {
    return wrong("a rank's block begins with 'rank N {', N below num_ranks, outside of others");
  }
  rank_ = rank;
  nodes_.clear();
  labels_.clear();
  return {};
}

base::Status GoalReader::end_rank() {
  RankInfo info;
  info.version = "GOAL";
  info.rank = rank_;
  info.world = world_;
  rank_.reset();
  base::Status status = sink_.on_rank(info);
  for (std::size_t i = 0; status.ok() && i < nodes_.size(); ++i) {
    status = sink_.on_node(nodes_[i]);
  }
  return status;
}

// `label: what ...`; nothing can wait for a statement without a label.
base::Status GoalReader::statement(const Words& words) {
  Words rest = words;
  Node node;
  node.id = nodes_.size();
  if (rest[0].ends_with(':')) {
    node.name = rest[0].substr(0, rest[0].size() - 1);
    if (!labels_.emplace(node.name, node.id).second) {
      return wrong(fmt::format("label '{}' is there twice", node.name));
    }
    rest.erase(rest.begin());
  }
  nodes_.push_back(std::move(node));
  if (rest.size() >= 2 && rest[0] == "calc") {
    const auto length = whole_number<std::int64_t>(rest[1]);
    if (!length || *length < 0) {
      return wrong(fmt::format("'calc {}': a time in nanoseconds is missing", rest[1]));
    }
    nodes_.back().kind = NodeKind::kCompute;
    nodes_.back().duration = bounded_duration(*length);
    return {};
  }
  if (rest.size() >= 4 && (rest[0] == "send" || rest[0] == "recv")) {
    return send_or_receive(rest, rest[0] == "send" ? NodeKind::kSend : NodeKind::kReceive);
  }
  return wrong("neither 'calc T', 'send Nb to R tag T' nor 'recv Nb from R tag T'");
}

base::Status GoalReader::send_or_receive(const Words& words, NodeKind kind) {
  Node& node = nodes_.back();
  node.kind = kind;
  std::string_view size = words[1];
  if (size.ends_with('b')) {
    size.remove_suffix(1);
  }
  const auto bytes = whole_number<std::uint64_t>(size);
  const auto peer = whole_number<std::uint32_t>(words[3]);
  if (!bytes || !peer || *peer >= *world_ ||
      words[2] != (kind == NodeKind::kSend ? "to" : "from")) {
    return wrong(fmt::format("'{} {} {} {}': the size or the rank is not one", words[0], words[1],
                             words[2], words[3]));
  }
  node.bytes = bytes;
  node.peer = peer;
  if (words.size() >= 6 && words[4] == "tag") {
    node.tag = whole_number<std::int32_t>(words[5]).value_or(0);
  }
  return {};
}

base::Status GoalReader::requirement(const Words& words) {
  const auto later = id_of(words[0]);
  const auto earlier = id_of(words[2]);
  if (!later || !earlier) {
    return wrong(fmt::format("'{}' is no label of this rank above", later ? words[2] : words[0]));
  }
  nodes_[static_cast<std::size_t>(*later)].data_deps.push_back(*earlier);
  return {};
}

}  // namespace

base::Status read_goal(std::string_view text, NodeSink& sink) {
  return GoalReader(sink).read(text);
}

}  // namespace spillway::emulate
