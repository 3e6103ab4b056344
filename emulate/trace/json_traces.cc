// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

namespace spillway::emulate {
namespace {

using nlohmann::json;

// ------------------------------------------------------------------ JSON values

std::optional<std::int64_t> integer_in(const json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return number <= INT64_MAX ? std::optional<std::int64_t>(static_cast<std::int64_t>(number))
                               : std::nullopt;
  }
  if (value.is_number_integer()) {
    return value.get<std::int64_t>();
  }
  if (value.is_boolean()) {
    return value.get<bool>() ? 1 : 0;
  }
  if (value.is_number_float() && std::abs(value.get<double>()) < 9e18) {
    return static_cast<std::int64_t>(value.get<double>());
  }
  return std::nullopt;
}

std::optional<std::int64_t> integer_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : integer_in(*found);
}

std::string text_in(const json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  return value.is_number() ? value.dump() : std::string();
}

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::string() : text_in(*found);
}

std::optional<std::uint32_t> rank_at(const json& object, const char* key) {
  const auto value = integer_at(object, key);
  if (!value || *value < 0 || *value >= kMaxTraceRanks) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(*value);
}

void ids_at(const json& object, const char* key, std::vector<std::uint64_t>& ids) {
  const auto found = object.find(key);
  if (found == object.end()) {
    return;
  }
  const auto take = [&ids](const json& value) {
    if (value.is_number_unsigned()) {
      ids.push_back(value.get<std::uint64_t>());
    }
  };
  if (found->is_array()) {
    for (const json& value : *found) {
      take(value);
    }
  } else {
    take(*found);  // PyTorch writes its single caller as a number
  }
}

base::Duration duration_of(std::optional<std::int64_t> microseconds) {
  return bounded_microseconds(
      static_cast<std::uint64_t>(std::max<std::int64_t>(microseconds.value_or(0), 0)));
}

// ------------------------------------------------------------------ Chakra's form

void read_workload_node(const json& object, Node& node) {
  node.clear();
  node.id = static_cast<std::uint64_t>(integer_at(object, "Id").value_or(0));
  node.name = text_at(object, "Name");
  constexpr std::array<NodeKind, 8> kKindOfType = {
      NodeKind::kOther,   NodeKind::kOther, NodeKind::kOther,   NodeKind::kOther,
      NodeKind::kCompute, NodeKind::kSend,  NodeKind::kReceive, NodeKind::kCollective};
  const auto type = integer_at(object, "NodeType").value_or(0);
  node.kind =
      type >= 0 && type < 8 ? kKindOfType[static_cast<std::size_t>(type)] : NodeKind::kOther;
  node.on_host = integer_at(object, "is_cpu_op").value_or(0) != 0;
  node.duration = duration_of(integer_at(object, "runtime"));
  ids_at(object, "data_deps", node.data_deps);
  ids_at(object, "ctrl_deps", node.control_deps);
  if (const auto bytes = integer_at(object, "comm_size"); bytes && *bytes >= 0) {
    node.bytes = static_cast<std::uint64_t>(*bytes);
  }
  const auto collective = integer_at(object, "comm_type");
  if (node.kind == NodeKind::kCollective && collective && *collective >= 0 &&
      *collective < kCollectiveKinds) {
    node.collective = static_cast<CollectiveKind>(*collective);
  }
  if (node.kind == NodeKind::kSend || node.kind == NodeKind::kReceive) {
    node.peer = rank_at(object, node.kind == NodeKind::kSend ? "comm_dst" : "comm_src");
  }
  node.tag = static_cast<std::int32_t>(integer_at(object, "comm_tag").value_or(0));
  node.group = text_at(object, "pg_name");
}

// ------------------------------------------------------------------ PyTorch's form

// `attrs` is a list of {"name", "value"}; older schemas use members of the node itself.
const json* attribute_of(const json& object, std::string_view name) {
  if (const auto attrs = object.find("attrs"); attrs != object.end() && attrs->is_array()) {
    for (const json& entry : *attrs) {
      if (entry.is_object() && text_at(entry, "name") == name && entry.contains("value")) {
        return &entry["value"];
      }
    }
  }
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string text_attribute(const json& object, std::string_view name) {
  const json* value = attribute_of(object, name);
  return value == nullptr ? std::string() : text_in(*value);
}

std::optional<std::int64_t> integer_attribute(const json& object, std::string_view name) {
  const json* value = attribute_of(object, name);
  return value == nullptr ? std::nullopt : integer_in(*value);
}

std::uint64_t element_bytes(const std::string& type) {
  if (type == "Double" || type == "Long") {
    return 8;
  }
  if (type == "Half" || type == "BFloat16" || type == "Short") {
    return 2;
  }
  return type == "Byte" || type == "Char" || type == "Bool" ? 1 : 4;
}

// Returns the first string group_kind the input values, at any depth (files use two).
std::string first_input_text(const json& object) {
  const auto inputs = object.find("inputs");
  if (inputs == object.end()) {
    return {};
  }
  const json* values = &*inputs;
  if (values->is_object() && values->contains("values")) {
    values = &(*values)["values"];
  }
  while (values->is_array() && !values->empty()) {
    values = &values->front();
  }
  return text_in(*values);
}

// ------------------------------------------------------------------ reading

enum class JsonKind { kUnknown, kWorkload, kPytorch };

class JsonTraceReader {
 public:
  explicit JsonTraceReader(NodeSink& sink) : sink_(sink) {}

  // The callback of nlohmann's parser. Returning false drops the parsed value.
  bool take(int depth, json::parse_event_t event, json& parsed) {
    if (status_.ok() && ++events_ > kMaxNodeEvents) {
      status_ = {base::StatusCode::kLimitExceeded,
                 fmt::format("a node, or the text before a node, has more than {} JSON values",
                             kMaxNodeEvents)};
    }
    if (!status_.ok()) {
      return false;
    }
    if (event == json::parse_event_t::key && depth == 1) {
      const auto& key = parsed.get_ref<const std::string&>();
      in_ = key == "workload_graph" ? JsonKind::kWorkload
            : key == "nodes"        ? JsonKind::kPytorch
                                    : JsonKind::kUnknown;
      if (in_ != JsonKind::kUnknown) {
        kind_ = in_;
      }
    } else if (event == json::parse_event_t::value && depth == 1) {
      take_member(parsed);
    } else if (event == json::parse_event_t::object_end && depth == 2 &&
               in_ != JsonKind::kUnknown) {
      take_node(parsed);
      events_ = 0;
      return false;
    }
    return true;
  }

  base::Status finish() {
    if (status_.ok() && kind_ == JsonKind::kUnknown) {
      return {base::StatusCode::kMalformed,
              "the JSON text has no member 'workload_graph' (Chakra) or 'nodes' (PyTorch)"};
    }
    begin();
    return status_;
  }

 private:
  void begin() {
    if (!begun_ && status_.ok()) {
      begun_ = true;
      status_ = sink_.on_rank(info_);
    }
  }
  void take_member(const json& value) {
    if (value.is_string() && info_.version.empty()) {
      info_.version = value.get<std::string>();  // "schema" comes first
    }
  }
  void take_node(const json& object) {
    if (in_ == JsonKind::kWorkload) {
      read_workload_node(object, node_);
    } else {
      read_call(object);
    }
    if (!begun_ && node_.name.starts_with("## process_group:init")) {
      info_.groups = parse_process_groups(first_input_text(object));
    } else if (!begun_ && in_ == JsonKind::kPytorch && node_.kind != NodeKind::kCollective &&
               held_.size() < kMaxHeld) {
      held_.push_back(node_);  // groups follow the first few nodes
      return;
    }
    emit();
  }
  void emit() {
    begin();
    for (const Node& node : held_) {
      if (status_.ok()) {
        status_ = sink_.on_node(node);
      }
    }
    held_.clear();
    if (status_.ok()) {
      status_ = sink_.on_node(node_);
    }
  }
  void read_call(const json& object);
  void read_communication(const json& object, const std::string& operation);

  static constexpr std::size_t kMaxHeld = 64;
  // The parser keeps a node until its end, at up to 100 bytes per value.
  static constexpr std::size_t kMaxNodeEvents = std::size_t{4} << 20;

  NodeSink& sink_;
  RankInfo info_;
  Node node_;
  std::vector<Node> held_;
  JsonKind kind_ = JsonKind::kUnknown;
  JsonKind in_ = JsonKind::kUnknown;
  std::size_t events_ = 0;  // of the parser, since the last node
  bool begun_ = false;
  std::optional<std::uint64_t> last_communication_;
  base::Status status_;
};

void JsonTraceReader::read_call(const json& object) {
  node_.clear();
  node_.id = static_cast<std::uint64_t>(integer_at(object, "id").value_or(0));
  node_.name = text_at(object, "name");
  node_.on_host = true;
  ids_at(object, object.contains("ctrl_deps") ? "ctrl_deps" : "parent", node_.control_deps);
  ids_at(object, "data_deps", node_.data_deps);
  node_.start = duration_of(integer_attribute(object, "ts"));
  const auto exclusive = integer_attribute(object, "exclusive_dur");
  node_.duration = duration_of(exclusive ? exclusive : integer_attribute(object, "dur"));
  node_.kind = node_.name.starts_with("[") || node_.name.starts_with("##") ? NodeKind::kOther
                                                                           : NodeKind::kCompute;
  const std::string operation = text_attribute(object, "collective_name");
  if (node_.name == "record_param_comms" && !operation.empty()) {
    read_communication(object, operation);
  }
}

void JsonTraceReader::read_communication(const json& object, const std::string& operation) {
  node_.collective = parse_collective_kind(operation);
  if (node_.collective) {
    node_.kind = NodeKind::kCollective;
  } else if (operation == "send" || operation == "recv") {
    node_.kind = operation == "send" ? NodeKind::kSend : NodeKind::kReceive;
    const auto peer = integer_attribute(object, operation == "send" ? "dst_rank" : "src_rank");
    if (peer && *peer >= 0 && *peer < kMaxTraceRanks) {
      node_.peer = static_cast<std::uint32_t>(*peer);
    }
  } else {
    return;  // wait, init and so on
  }
  const auto elements = integer_attribute(object, "in_msg_nelems");
  if (elements && *elements >= 0 && *elements <= (std::int64_t{1} << 48)) {
    node_.bytes =
        static_cast<std::uint64_t>(*elements) * element_bytes(text_attribute(object, "dtype"));
  }
  node_.group = text_attribute(object, "pg_name");
  if (last_communication_) {
    node_.data_deps.push_back(*last_communication_);
  }
  last_communication_ = node_.id;
}

}  // namespace

base::Status read_json_trace(std::string_view text, NodeSink& sink) {
  if (text.size() > kMaxJsonBytes) {
    return {base::StatusCode::kLimitExceeded,
            fmt::format("a JSON trace of {} bytes; {} is the limit", text.size(), kMaxJsonBytes)};
  }
  JsonTraceReader reader(sink);
  const json parsed = json::parse(
      text.begin(), text.end(),
      [&reader](int depth, json::parse_event_t event, json& value) {
        return reader.take(depth, event, value);
      },
      false);
  const base::Status status = reader.finish();
  if (status.ok() && parsed.is_discarded()) {
    return {base::StatusCode::kMalformed, "the text is not JSON, or it ends early"};
  }
  return status;
}

}  // namespace spillway::emulate
