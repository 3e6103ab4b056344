// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

namespace spillway::emulate {

// ------------------------------------------------------------------ GOAL

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
  base::Status malformed(const std::string& what) const {
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
    return malformed(rank_ ? "the text ends inside a rank's block" : "there is no 'num_ranks N'");
  }
  return {};
}

base::Status GoalReader::line(const Words& words) {
  if (words[0] == "num_ranks" && words.size() == 2) {
    world_ = whole_number<std::uint32_t>(words[1]);
    return world_ && *world_ >= 1 && *world_ <= kMaxTraceRanks
               ? base::Status()
               : malformed(fmt::format("num_ranks must be 1 to {}", kMaxTraceRanks));
  }
  if (words[0] == "rank") {
    return begin_rank(words);
  }
  if (!rank_) {
    return malformed(fmt::format("'{}' is outside of a rank's block", words[0]));
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
    return malformed(
        "a rank's block begins with 'rank N {', with N below num_ranks, and cannot be nested");
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

// Reads `label: statement`. No other statement can wait for one without a label.
base::Status GoalReader::statement(const Words& words) {
  Words rest = words;
  Node node;
  node.id = nodes_.size();
  if (rest[0].ends_with(':')) {
    node.name = rest[0].substr(0, rest[0].size() - 1);
    if (!labels_.emplace(node.name, node.id).second) {
      return malformed(fmt::format("label '{}' is used twice", node.name));
    }
    rest.erase(rest.begin());
  }
  nodes_.push_back(std::move(node));
  if (rest.size() >= 2 && rest[0] == "calc") {
    const auto length = whole_number<std::int64_t>(rest[1]);
    if (!length || *length < 0) {
      return malformed(fmt::format("'calc {}': a time in nanoseconds is missing", rest[1]));
    }
    nodes_.back().kind = NodeKind::kCompute;
    nodes_.back().duration = bounded_duration(*length);
    return {};
  }
  if (rest.size() >= 4 && (rest[0] == "send" || rest[0] == "recv")) {
    return send_or_receive(rest, rest[0] == "send" ? NodeKind::kSend : NodeKind::kReceive);
  }
  return malformed("a statement must be 'calc T', 'send Nb to R tag T' or 'recv Nb from R tag T'");
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
    return malformed(fmt::format("'{} {} {} {}' has no valid size or rank", words[0], words[1],
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
    return malformed(fmt::format("there is no label '{}' above in this rank's block",
                                 later ? words[2] : words[0]));
  }
  nodes_[static_cast<std::size_t>(*later)].data_deps.push_back(*earlier);
  return {};
}

}  // namespace

base::Status read_goal(std::string_view text, NodeSink& sink) {
  return GoalReader(sink).read(text);
}

// ------------------------------------------------------------------ SimAI

namespace {

constexpr std::size_t kRowWords = 12;

// The ranks that a row's communication involves.
enum class GroupKind : std::uint8_t { kTensor, kData, kExpert, kExpertData };

struct RowPhase {
  base::Duration compute{};
  std::optional<CollectiveKind> collective;
  GroupKind group_kind = GroupKind::kTensor;
  std::uint64_t bytes = 0;
};

struct SimaiRow {
  std::string name;
  std::array<RowPhase, 3> phases;  // forward, input gradient, weight gradient
  base::Duration update{};
};

struct SimaiHeader {
  std::uint32_t tensor = 1;
  std::uint32_t expert = 1;
  std::uint32_t pipeline = 1;
  std::uint32_t world = 0;
  std::uint32_t data() const { return world / (tensor * pipeline); }
};

base::Status simai_malformed(std::size_t line, const std::string& what) {
  return {base::StatusCode::kMalformed, fmt::format("line {}: {}", line, what)};
}

base::Status read_header(std::string_view line, SimaiHeader& header) {
  std::vector<std::string_view> words;
  split_words(line, words);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const auto value = whole_number<std::uint32_t>(words[i + 1]);
    if (!value) {
      continue;
    }
    if (words[i] == "model_parallel_NPU_group:") {
      header.tensor = *value;
    } else if (words[i] == "ep:") {
      header.expert = *value;
    } else if (words[i] == "pp:") {
      header.pipeline = *value;
    } else if (words[i] == "all_gpus:") {
      header.world = *value;
    }
  }
  const auto divides = [](std::uint64_t part, std::uint64_t all) {
    return part > 0 && all % part == 0;
  };
  if (header.world < 1 || header.world > kMaxTraceRanks ||
      !divides(std::uint64_t{header.tensor} * header.pipeline, header.world) ||
      !divides(header.expert, header.data())) {
    return simai_malformed(
        1,
        "model_parallel_NPU_group times pp must divide all_gpus, and ep must divide the quotient");
  }
  return {};
}

bool read_phase(std::span<const std::string_view> words, bool is_weight_gradient, RowPhase& phase) {
  const auto compute = whole_number<std::int64_t>(words[0]);
  const auto bytes = whole_number<std::uint64_t>(words[2]);
  if (!compute || *compute < 0 || !bytes) {
    return false;
  }
  phase.compute = bounded_duration(*compute);
  phase.bytes = *bytes;
  std::string_view name = words[1];
  phase.group_kind = is_weight_gradient ? GroupKind::kData : GroupKind::kTensor;
  if (name.ends_with("_DP_EP")) {
    phase.group_kind = GroupKind::kExpertData;
    name.remove_suffix(6);
  } else if (name.ends_with("_EP")) {
    phase.group_kind = GroupKind::kExpert;
    name.remove_suffix(3);
  }
  phase.collective = parse_collective_kind(name);
  return phase.collective.has_value() || name == "NONE";
}

base::Status read_row(std::size_t line, const std::vector<std::string_view>& words, SimaiRow& row) {
  const std::span<const std::string_view> all(words);
  const auto update =
      words.size() >= kRowWords ? whole_number<std::int64_t>(words[11]) : std::nullopt;
  bool good = update && *update >= 0;
  for (std::size_t i = 0; good && i < 3; ++i) {
    good = read_phase(all.subspan(2 + 3 * i, 3), i == 2, row.phases[i]);
  }
  if (!good) {
    return simai_malformed(
        line, "a row must be 'name id time COMM bytes time COMM bytes time COMM bytes time'");
  }
  row.name = words[0];
  row.update = bounded_duration(*update);
  return {};
}

// The nodes of one rank.
class SimaiRank {
 public:
  SimaiRank(const SimaiHeader& header, std::uint32_t rank, NodeSink& sink)
      : header_(header), rank_(rank), sink_(sink) {}

  base::Status run(const std::vector<SimaiRow>& rows);

 private:
  RankInfo info() const;
  std::string group_name(GroupKind group_kind) const;
  GroupInfo group(GroupKind group_kind) const;
  base::Status compute(const std::string& name, base::Duration length);
  base::Status communicate(const std::string& name, const RowPhase& phase, bool is_waited_for);
  base::Status emit() {
    const base::Status status = sink_.on_node(node_);
    ++next_id_;
    return status;
  }

  const SimaiHeader& header_;
  std::uint32_t rank_;
  NodeSink& sink_;
  Node node_;
  std::uint64_t next_id_ = 0;
  std::optional<std::uint64_t> last_;
  std::vector<std::uint64_t> background_;  // nodes that exchange weight gradients
};

std::string SimaiRank::group_name(GroupKind group_kind) const {
  const std::uint32_t in_stage = header_.tensor * header_.data();
  const std::uint32_t stage = rank_ / in_stage;
  const std::uint32_t tensor = rank_ % header_.tensor;
  const std::uint32_t data = rank_ % in_stage / header_.tensor;
  switch (group_kind) {
    case GroupKind::kTensor:
      return fmt::format("tp{}", rank_ / header_.tensor);
    case GroupKind::kData:
      return fmt::format("dp{}.{}", stage, tensor);
    case GroupKind::kExpert:
      return fmt::format("ep{}.{}.{}", stage, tensor, data / header_.expert);
    case GroupKind::kExpertData:
      break;
  }
  return fmt::format("dpep{}.{}.{}", stage, tensor, data % header_.expert);
}

GroupInfo SimaiRank::group(GroupKind group_kind) const {
  const std::uint32_t in_stage = header_.tensor * header_.data();
  const std::uint32_t first = rank_ / in_stage * in_stage;  // first rank of the stage
  const std::uint32_t tensor = rank_ % header_.tensor;
  const std::uint32_t data = rank_ % in_stage / header_.tensor;
  GroupInfo made{group_name(group_kind), {}};
  const auto add = [&](std::uint32_t data_index, std::uint32_t tensor_index) {
    made.ranks.push_back(first + data_index * header_.tensor + tensor_index);
  };
  switch (group_kind) {
    case GroupKind::kTensor:
      for (std::uint32_t i = 0; i < header_.tensor; ++i) {
        add(data, i);
      }
      break;
    case GroupKind::kData:
      for (std::uint32_t i = 0; i < header_.data(); ++i) {
        add(i, tensor);
      }
      break;
    case GroupKind::kExpert:
      for (std::uint32_t i = 0; i < header_.expert; ++i) {
        add(data / header_.expert * header_.expert + i, tensor);
      }
      break;
    case GroupKind::kExpertData:
      for (std::uint32_t i = data % header_.expert; i < header_.data(); i += header_.expert) {
        add(i, tensor);
      }
      break;
  }
  return made;
}

RankInfo SimaiRank::info() const {
  RankInfo made;
  made.version = "SimAI";
  made.rank = rank_;
  made.world = header_.world;
  for (const GroupKind group_kind :
       {GroupKind::kTensor, GroupKind::kData, GroupKind::kExpert, GroupKind::kExpertData}) {
    made.groups.push_back(group(group_kind));
  }
  return made;
}

base::Status SimaiRank::compute(const std::string& name, base::Duration length) {
  node_.clear();
  node_.id = next_id_;
  node_.name = name;
  node_.kind = NodeKind::kCompute;
  node_.duration = length;
  if (last_) {
    node_.data_deps.push_back(*last_);
  }
  last_ = node_.id;
  return emit();
}

base::Status SimaiRank::communicate(const std::string& name, const RowPhase& phase,
                                    bool is_waited_for) {
  if (!phase.collective) {
    return {};
  }
  node_.clear();
  node_.id = next_id_;
  node_.name = name;
  node_.kind = NodeKind::kCollective;
  node_.collective = phase.collective;
  node_.bytes = phase.bytes;
  node_.group = group_name(phase.group_kind);
  if (last_) {
    node_.data_deps.push_back(*last_);
  }
  if (is_waited_for) {
    last_ = node_.id;
  } else {
    background_.push_back(node_.id);
  }
  return emit();
}

base::Status SimaiRank::run(const std::vector<SimaiRow>& rows) {
  base::Status status = sink_.on_rank(info());
  const auto phase = [&](const SimaiRow& row, std::size_t which, const char* label) {
    const std::string name = fmt::format("{} {}", row.name, label);
    if (status.ok()) {
      status = compute(name, row.phases[which].compute);
    }
    if (status.ok()) {
      status = communicate(name, row.phases[which], which != 2);
    }
  };
  for (const SimaiRow& row : rows) {
    phase(row, 0, "forward");
  }
  base::Duration update{};
  for (std::size_t i = rows.size(); i > 0; --i) {
    phase(rows[i - 1], 1, "input gradient");
    phase(rows[i - 1], 2, "weight gradient");
    update = bounded_duration((update + rows[i - 1].update).count());
  }
  if (!status.ok()) {
    return status;
  }
  node_.clear();
  node_.id = next_id_;
  node_.name = "update";
  node_.kind = NodeKind::kCompute;
  node_.duration = update;
  node_.data_deps = background_;
  if (last_) {
    node_.data_deps.push_back(*last_);
  }
  return emit();
}

}  // namespace

base::Status read_simai(std::string_view text, NodeSink& sink) {
  TextLines lines(text);
  std::string_view line;
  SimaiHeader header;
  std::vector<std::string_view> words;
  if (!lines.next(line)) {
    return simai_malformed(1, "the text is empty");
  }
  if (base::Status status = read_header(line, header); !status.ok()) {
    return status;
  }
  std::vector<SimaiRow> rows;
  lines.next(line);  // number of rows; ignored
  while (lines.next(line)) {
    split_words(line, words);
    if (words.empty()) {
      continue;
    }
    if (base::Status status = read_row(lines.number(), words, rows.emplace_back()); !status.ok()) {
      return status;
    }
  }
  const std::uint64_t members = header.tensor + header.expert + std::uint64_t{2} * header.data();
  if (members * header.world > kMaxSimaiMembers ||
      7 * rows.size() * std::uint64_t{header.world} > kMaxSimaiNodes) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("{} rows at {} ranks make more than {} nodes or {} group members",
                        rows.size(), header.world, kMaxSimaiNodes, kMaxSimaiMembers)};
  }
  for (std::uint32_t rank = 0; rank < header.world; ++rank) {
    if (base::Status status = SimaiRank(header, rank, sink).run(rows); !status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace spillway::emulate
