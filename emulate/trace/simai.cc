// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "emulate/trace/text_lines.h"
#include "emulate/trace/text_traces.h"

namespace spillway::emulate {
namespace {

constexpr std::size_t kRowWords = 12;

// The ranks that a row's communication involves.
enum class Among : std::uint8_t { kTensor, kData, kExpert, kExpertData };

struct RowPart {
  base::Duration compute{};
  std::optional<CollectiveKind> collective;
  Among among = Among::kTensor;
  std::uint64_t bytes = 0;
};

struct SimaiRow {
  std::string name;
  std::array<RowPart, 3> parts;  // forward, input gradient, weight gradient
  base::Duration update{};
};

struct SimaiHeader {
  std::uint32_t tensor = 1;
  std::uint32_t expert = 1;
  std::uint32_t pipeline = 1;
  std::uint32_t world = 0;
  std::uint32_t data() const { return world / (tensor * pipeline); }
};

base::Status simai_wrong(std::size_t line, const std::string& what) {
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
    return simai_wrong(
        1, "model_parallel_NPU_group times pp must divide all_gpus, and ep what is left");
  }
  return {};
}

bool read_part(std::span<const std::string_view> words, bool is_weight_gradient, RowPart& part) {
  const auto compute = whole_number<std::int64_t>(words[0]);
  const auto bytes = whole_number<std::uint64_t>(words[2]);
  if (!compute || *compute < 0 || !bytes) {
    return false;
  }
  part.compute = bounded_duration(*compute);
  part.bytes = *bytes;
  std::string_view name = words[1];
  part.among = is_weight_gradient ? Among::kData : Among::kTensor;
  if (name.ends_with("_DP_EP")) {
    part.among = Among::kExpertData;
    name.remove_suffix(6);
  } else if (name.ends_with("_EP")) {
    part.among = Among::kExpert;
    name.remove_suffix(3);
  }
  part.collective = parse_collective_kind(name);
  return part.collective.has_value() || name == "NONE";
}

base::Status read_row(std::size_t line, const std::vector<std::string_view>& words, SimaiRow& row) {
  const std::span<const std::string_view> all(words);
  const auto update =
      words.size() >= kRowWords ? whole_number<std::int64_t>(words[11]) : std::nullopt;
  bool good = update && *update >= 0;
  for (std::size_t i = 0; good && i < 3; ++i) {
    good = read_part(all.subspan(2 + 3 * i, 3), i == 2, row.parts[i]);
  }
  if (!good) {
    return simai_wrong(line,
                       "a row is 'name id time COMM bytes time COMM bytes time COMM bytes time'");
  }
  row.name = words[0];
  row.update = bounded_duration(*update);
  return {};
}

// ------------------------------------------------------------------ one rank's nodes

class SimaiRank {
 public:
  SimaiRank(const SimaiHeader& header, std::uint32_t rank, NodeSink& sink)
      : header_(header), rank_(rank), sink_(sink) {}

  base::Status run(const std::vector<SimaiRow>& rows);

 private:
  RankInfo info() const;
  std::string group_name(Among among) const;
  GroupInfo group(Among among) const;
  base::Status compute(const std::string& name, base::Duration length);
  base::Status communicate(const std::string& name, const RowPart& part, bool is_waited_for);
  base::Status hand_out() {
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
  std::vector<std::uint64_t> beside_;  // nodes of weight gradients' communication
};

std::string SimaiRank::group_name(Among among) const {
  const std::uint32_t in_stage = header_.tensor * header_.data();
  const std::uint32_t stage = rank_ / in_stage;
  const std::uint32_t tensor = rank_ % header_.tensor;
  const std::uint32_t data = rank_ % in_stage / header_.tensor;
  switch (among) {
    case Among::kTensor:
      return fmt::format("tp{}", rank_ / header_.tensor);
    case Among::kData:
      return fmt::format("dp{}.{}", stage, tensor);
    case Among::kExpert:
      return fmt::format("ep{}.{}.{}", stage, tensor, data / header_.expert);
    case Among::kExpertData:
      break;
  }
  return fmt::format("dpep{}.{}.{}", stage, tensor, data % header_.expert);
}

GroupInfo SimaiRank::group(Among among) const {
  const std::uint32_t in_stage = header_.tensor * header_.data();
  const std::uint32_t first = rank_ / in_stage * in_stage;  // first rank of the stage
  const std::uint32_t tensor = rank_ % header_.tensor;
  const std::uint32_t data = rank_ % in_stage / header_.tensor;
  GroupInfo made{group_name(among), {}};
  const auto add = [&](std::uint32_t data_index, std::uint32_t tensor_index) {
    made.ranks.push_back(first + data_index * header_.tensor + tensor_index);
  };
  switch (among) {
    case Among::kTensor:
      for (std::uint32_t i = 0; i < header_.tensor; ++i) {
        add(data, i);
      }
      break;
    case Among::kData:
      for (std::uint32_t i = 0; i < header_.data(); ++i) {
        add(i, tensor);
      }
      break;
    case Among::kExpert:
      for (std::uint32_t i = 0; i < header_.expert; ++i) {
        add(data / header_.expert * header_.expert + i, tensor);
      }
      break;
    case Among::kExpertData:
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
  for (const Among among : {Among::kTensor, Among::kData, Among::kExpert, Among::kExpertData}) {
    made.groups.push_back(group(among));
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
  return hand_out();
}

base::Status SimaiRank::communicate(const std::string& name, const RowPart& part,
                                    bool is_waited_for) {
  if (!part.collective) {
    return {};
  }
  node_.clear();
  node_.id = next_id_;
  node_.name = name;
  node_.kind = NodeKind::kCollective;
  node_.collective = part.collective;
  node_.bytes = part.bytes;
  node_.group = group_name(part.among);
  if (last_) {
    node_.data_deps.push_back(*last_);
  }
  if (is_waited_for) {
    last_ = node_.id;
  } else {
    beside_.push_back(node_.id);
  }
  return hand_out();
}

base::Status SimaiRank::run(const std::vector<SimaiRow>& rows) {
  base::Status status = sink_.on_rank(info());
  const auto part = [&](const SimaiRow& row, std::size_t which, const char* what) {
    const std::string name = fmt::format("{} {}", row.name, what);
    if (status.ok()) {
      status = compute(name, row.parts[which].compute);
    }
    if (status.ok()) {
      status = communicate(name, row.parts[which], which != 2);
    }
  };
  for (const SimaiRow& row : rows) {
    part(row, 0, "forward");
  }
  base::Duration update{};
  for (std::size_t i = rows.size(); i > 0; --i) {
    part(rows[i - 1], 1, "input gradient");
    part(rows[i - 1], 2, "weight gradient");
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
  node_.data_deps = beside_;
  if (last_) {
    node_.data_deps.push_back(*last_);
  }
  return hand_out();
}

}  // namespace

base::Status read_simai(std::string_view text, NodeSink& sink) {
  TextLines lines(text);
  std::string_view line;
  SimaiHeader header;
  std::vector<std::string_view> words;
  if (!lines.next(line)) {
    return simai_wrong(1, "the text is empty");
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
            fmt::format("{} rows at {} ranks are more than {} nodes or {} members of groups",
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
