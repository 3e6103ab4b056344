// SPDX-License-Identifier: Apache-2.0
#include "observe/chakra/encode.h"

#include <string_view>

#include "base/chrome_events.h"
#include "observe/chakra/proto.h"

namespace spillway::chakra {
namespace {

constexpr std::string_view kVersion = "1.0.0";

std::uint64_t chakra_type_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::kCompute:
      return 4;
    case NodeKind::kSend:
      return 5;
    case NodeKind::kReceive:
      return 6;
    case NodeKind::kCollective:
      return 7;
    case NodeKind::kOther:
      break;
  }
  return 1;  // METADATA_NODE
}

enum Arm : std::uint32_t { kInt32 = 7, kInt64 = 9, kBool = 27, kString = 29 };

// Appends the attribute to `message` as field `number`; `scratch` is a reused buffer.
void append_attribute(std::string& message, std::string& scratch, std::uint32_t number,
                      std::string_view name, Arm arm, std::uint64_t value) {
  scratch.clear();
  append_bytes_field(scratch, 1, name);
  append_varint_field(scratch, arm, value);
  append_bytes_field(message, number, scratch);
}

void append_attribute(std::string& message, std::string& scratch, std::uint32_t number,
                      std::string_view name, std::string_view text) {
  scratch.clear();
  append_bytes_field(scratch, 1, name);
  append_bytes_field(scratch, kString, text);
  append_bytes_field(message, number, scratch);
}

void append_ids(std::string& message, std::string& scratch, std::uint32_t number,
                const std::vector<std::uint64_t>& ids) {
  if (ids.empty()) {
    return;
  }
  scratch.clear();
  for (const std::uint64_t id : ids) {
    append_varint(scratch, id);
  }
  append_bytes_field(message, number, scratch);
}

void append_communication(std::string& message, std::string& scratch, const Node& node) {
  const auto number = [&](std::string_view name, Arm arm, std::uint64_t value) {
    append_attribute(message, scratch, 10, name, arm, value);
  };
  if (node.collective) {
    number("comm_type", kInt64, static_cast<std::uint64_t>(*node.collective));
  }
  if (node.bytes) {
    number("comm_size", kInt64, *node.bytes);
  }
  if (node.peer) {
    number(node.kind == NodeKind::kSend ? "comm_dst" : "comm_src", kInt32, *node.peer);
  }
  if (node.kind == NodeKind::kSend || node.kind == NodeKind::kReceive) {
    number("comm_tag", kInt32, static_cast<std::uint64_t>(std::int64_t{node.tag}));
  }
  if (node.root != 0) {
    number("comm_root", kInt32, node.root);
  }
  if (!node.group.empty()) {
    append_attribute(message, scratch, 10, "pg_name", node.group);
  }
}

}  // namespace

void Encoder::append_framed(std::string& to) const {
  append_varint(to, message_.size());
  to += message_;
}

void Encoder::append(const RankInfo& info, std::string& to) {
  message_.clear();
  append_bytes_field(message_, 1, info.version.empty() ? kVersion : info.version);
  if (info.rank) {
    append_attribute(message_, scratch_, 2, "rank", kInt64, *info.rank);
  }
  if (info.world) {
    append_attribute(message_, scratch_, 2, "world_size", kInt64, *info.world);
  }
  if (!info.groups.empty()) {
    append_attribute(message_, scratch_, 2, "process_groups", process_groups_json(info.groups));
  }
  append_framed(to);
}

void Encoder::append(const Node& node, std::string& to) {
  message_.clear();
  append_varint_field(message_, 1, node.id);
  append_bytes_field(message_, 2, node.name);
  append_varint_field(message_, 3, chakra_type_of(node.kind));
  append_ids(message_, scratch_, 4, node.control_deps);
  append_ids(message_, scratch_, 5, node.data_deps);
  const std::int64_t nanoseconds = node.duration.count();
  if (node.start.count() > 0) {
    append_varint_field(message_, 6, static_cast<std::uint64_t>(node.start.count() / 1000));
  }
  if (nanoseconds > 0) {
    append_varint_field(message_, 7, static_cast<std::uint64_t>((nanoseconds + 500) / 1000));
  }
  append_attribute(message_, scratch_, 10, "is_cpu_op", kBool, node.on_host ? 1 : 0);
  if (nanoseconds % 1000 != 0) {
    append_attribute(message_, scratch_, 10, "duration_nanos", kInt64,
                     static_cast<std::uint64_t>(nanoseconds));
  }
  append_communication(message_, scratch_, node);
  append_framed(to);
}

std::string process_groups_json(const std::vector<GroupInfo>& groups) {
  std::string text = "[";
  for (const GroupInfo& group : groups) {
    text += text.size() > 1 ? ", " : "";
    text += "{\"pg_name\": " + base::json_quoted(group.name) + ", \"ranks\": [";
    for (std::size_t i = 0; i < group.ranks.size(); ++i) {
      text += (i > 0 ? ", " : "") + std::to_string(group.ranks[i]);
    }
    text += "]}";
  }
  return text + "]";
}

}  // namespace spillway::chakra
