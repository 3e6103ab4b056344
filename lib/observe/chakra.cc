// SPDX-License-Identifier: Apache-2.0
#include "observe/chakra.h"

#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace spillway::chakra {

namespace {

// Keeps only the letters, in lower case: all spellings of a collective share them.
std::string letters_of(std::string_view text) {
  std::string letters;
  for (const char c : text) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      letters.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    }
  }
  return letters;
}

constexpr std::array<std::pair<std::string_view, CollectiveKind>, 13> kSpellings = {{
    {"allreduce", CollectiveKind::kAllReduce},
    {"allreducecoalesced", CollectiveKind::kAllReduce},
    {"reduce", CollectiveKind::kReduce},
    {"allgather", CollectiveKind::kAllGather},
    {"allgatherbase", CollectiveKind::kAllGather},
    {"gather", CollectiveKind::kGather},
    {"scatter", CollectiveKind::kScatter},
    {"broadcast", CollectiveKind::kBroadcast},
    {"alltoall", CollectiveKind::kAllToAll},
    {"alltoallv", CollectiveKind::kAllToAll},
    {"reducescatter", CollectiveKind::kReduceScatter},
    {"reducescatterbase", CollectiveKind::kReduceScatter},
    {"barrier", CollectiveKind::kBarrier},
}};

}  // namespace

const char* node_kind_name(NodeKind kind) {
  switch (kind) {
    case NodeKind::kCompute:
      return "compute";
    case NodeKind::kSend:
      return "send";
    case NodeKind::kReceive:
      return "receive";
    case NodeKind::kCollective:
      return "collective";
    case NodeKind::kOther:
      break;
  }
  return "other";
}

const char* collective_kind_name(CollectiveKind kind) {
  constexpr std::array<const char*, kCollectiveKinds> names = {
      "all-reduce", "reduce",         "all-gather",           "gather", "scatter", "broadcast",
      "all-to-all", "reduce-scatter", "reduce-scatter-block", "barrier"};
  return names[static_cast<std::size_t>(kind)];
}

std::optional<CollectiveKind> parse_collective_kind(std::string_view text) {
  std::string letters = letters_of(text);
  for (const std::string_view prefix : {"nccl", "c10d", "gloo", "mpi", "ucc"}) {
    if (letters.starts_with(prefix)) {
      letters.erase(0, prefix.size());
    }
  }
  for (const auto& [spelling, kind] : kSpellings) {
    if (letters == spelling) {
      return kind;
    }
  }
  return std::nullopt;
}

void Node::clear() {
  id = 0;
  name.clear();
  kind = NodeKind::kOther;
  bytes.reset();
  collective.reset();
  group.clear();
  root = 0;
  peer.reset();
  tag = 0;
  on_host = false;
  start = base::Duration();
  duration = base::Duration();
  data_deps.clear();
  control_deps.clear();
}

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

namespace {

constexpr std::uint64_t kMaxFieldNumber = (1U << 29) - 1;

bool take(base::ByteView& bytes, std::uint64_t count, base::ByteView& taken) {
  if (count > bytes.size()) {
    return false;
  }
  taken = bytes.first(static_cast<std::size_t>(count));
  bytes = bytes.subspan(static_cast<std::size_t>(count));
  return true;
}

}  // namespace

bool read_varint(base::ByteView& bytes, std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 70 && !bytes.empty(); shift += 7) {
    const std::uint8_t byte = bytes.front();
    bytes = bytes.subspan(1);
    if (shift == 63 && byte > 1) {
      return false;
    }
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) {
      return true;
    }
  }
  return false;
}

bool ProtoReader::next(ProtoField& field) {
  if (!ok_ || bytes_.empty()) {
    return false;
  }
  std::uint64_t key = 0;
  if (!read_varint(bytes_, key) || key >> 3 == 0 || key >> 3 > kMaxFieldNumber) {
    return fail();
  }
  field.number = static_cast<std::uint32_t>(key >> 3);
  field.type = static_cast<WireType>(key & 7);
  field.value = 0;
  field.bytes = {};
  switch (field.type) {
    case WireType::kVarint:
      return read_varint(bytes_, field.value) || fail();
    case WireType::kFixed64:
      if (!take(bytes_, 8, field.bytes)) {
        return fail();
      }
      field.value = base::load_le<std::uint64_t>(field.bytes.data());
      return true;
    case WireType::kBytes: {
      std::uint64_t size = 0;
      return (read_varint(bytes_, size) && take(bytes_, size, field.bytes)) || fail();
    }
    case WireType::kFixed32:
      if (!take(bytes_, 4, field.bytes)) {
        return fail();
      }
      field.value = base::load_le<std::uint32_t>(field.bytes.data());
      return true;
  }
  return fail();
}

void append_varint(std::string& to, std::uint64_t value) {
  while (value >= 0x80) {
    to.push_back(static_cast<char>((value & 0x7F) | 0x80));
    value >>= 7;
  }
  to.push_back(static_cast<char>(value));
}

void append_varint_field(std::string& to, std::uint32_t number, std::uint64_t value) {
  append_varint(to, std::uint64_t{number} << 3 | static_cast<std::uint64_t>(WireType::kVarint));
  append_varint(to, value);
}

void append_bytes_field(std::string& to, std::uint32_t number, std::string_view bytes) {
  append_varint(to, std::uint64_t{number} << 3 | static_cast<std::uint64_t>(WireType::kBytes));
  append_varint(to, bytes.size());
  to.append(bytes);
}

}  // namespace spillway::chakra
