// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "emulate/trace/chakra.h"
#include "emulate/trace/json_traces.h"
#include "emulate/trace/text_lines.h"
#include "emulate/trace/text_traces.h"

namespace spillway::emulate {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBeginning = 256;

struct NumberedName {
  std::string_view prefix;
  std::uint32_t rank = 0;
};

std::string_view without_gz(std::string_view name) {
  return name.ends_with(".gz") ? name.substr(0, name.size() - 3) : name;
}

// "a.b.12.et.gz" is rank 12 of "a.b".
std::optional<NumberedName> numbered(std::string_view name) {
  name = without_gz(name);
  if (!name.ends_with(".et") && !name.ends_with(".json")) {
    return std::nullopt;
  }
  name = name.substr(0, name.rfind('.'));
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) {
    return std::nullopt;
  }
  const auto rank = whole_number<std::uint32_t>(name.substr(dot + 1));
  if (!rank || *rank >= kMaxTraceRanks) {
    return std::nullopt;
  }
  return NumberedName{name.substr(0, dot), *rank};
}

// Hidden files, such as the "._" ones that macOS writes beside each file.
bool is_hidden(std::string_view name) {
  return name.starts_with('.');
}

// "resnet.2024.json" is a rank's file only if "resnet.0.json" or the like lies beside it.
bool is_one_of_several(const fs::path& path, const NumberedName& number) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  for (const char* end : {".et", ".et.gz", ".json", ".json.gz"}) {
    std::error_code error;
    if (fs::exists(folder / fmt::format("{}.0{}", number.prefix, end), error)) {
      return true;
    }
  }
  return false;
}

base::Status check_ranks(const std::string& place, std::vector<TraceFile>& files) {
  if (files.empty()) {
    return base::invalid_argument(fmt::format(
        "no trace at {}: neither a file nor {}.0.et, {}.0.json or the like", place, place, place));
  }
  std::sort(files.begin(), files.end(),
            [](const TraceFile& a, const TraceFile& b) { return a.rank < b.rank; });
  const auto twice =
      std::adjacent_find(files.begin(), files.end(),
                         [](const TraceFile& a, const TraceFile& b) { return a.rank == b.rank; });
  if (twice != files.end()) {
    return base::invalid_argument(fmt::format("rank {} has two traces: {} and {}", twice->rank,
                                              twice->path, std::next(twice)->path));
  }
  return {};
}

// The limit of what nodes may take, for as much of the file as was read.
std::uint64_t allowed_graph_bytes(const ByteSource& source) {
  const std::optional<std::uint64_t> packed = source.packed_bytes();
  return packed ? kFreeGraphBytes + kMaxGraphRatio * *packed : UINT64_MAX;
}

base::Status too_many_nodes() {
  return unpacks_to_more_than(
      fmt::format("{} times its size in nodes and dependencies", kMaxGraphRatio));
}

// Passes nodes on until they exceed the limit of a gzip file.
class BoundedSink final : public NodeSink {
 public:
  BoundedSink(const ByteSource& source, NodeSink& sink) : source_(source), sink_(sink) {}

  base::Status on_rank(const RankInfo& info) override { return sink_.on_rank(info); }
  base::Status on_node(const Node& node) override {
    used_ += kNodeCharge + kDependencyCharge * (node.data_deps.size() + node.control_deps.size());
    if (used_ > allowed_) {
      allowed_ = allowed_graph_bytes(source_);
      if (used_ > allowed_) {
        return too_many_nodes();
      }
    }
    return sink_.on_node(node);
  }

 private:
  const ByteSource& source_;
  NodeSink& sink_;
  std::uint64_t used_ = 0;
  std::uint64_t allowed_ = kFreeGraphBytes;  // as far as the file was read when this was computed
};

}  // namespace

base::Result<std::vector<TraceFile>> find_trace_files(const std::string& place) {
  std::error_code error;
  std::vector<TraceFile> files;
  const fs::path path(place);
  if (fs::is_regular_file(path, error)) {
    const std::string name = path.filename().string();
    const auto number = numbered(name);
    return std::vector<TraceFile>{
        {place, number && is_one_of_several(path, *number) ? number->rank : 0}};
  }
  const bool is_folder = fs::is_directory(path, error);
  const fs::path folder = is_folder ? path : path.has_parent_path() ? path.parent_path() : ".";
  std::string prefix = is_folder ? "" : path.filename().string();
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto number = is_hidden(name) ? std::nullopt : numbered(name);
    if (!number || (!prefix.empty() && number->prefix != prefix)) {
      if (number && is_folder) {
        return base::invalid_argument(
            fmt::format("{} has several traces, {} and {}: give one as a prefix", place, prefix,
                        number->prefix));
      }
      continue;
    }
    prefix = number->prefix;
    files.push_back({entry->path().string(), number->rank});
  }
  if (base::Status status = check_ranks(place, files); !status.ok()) {
    return status;
  }
  if (files.size() == 1) {
    files[0].rank = 0;  // a single file is rank 0, whatever its number
  }
  return files;
}

TraceFormat format_of(const std::string& name, std::string_view beginning) {
  const std::string_view plain = without_gz(name);
  if (plain.ends_with(".et")) {
    return TraceFormat::kChakra;
  }
  if (plain.ends_with(".json")) {
    return TraceFormat::kJson;
  }
  if (plain.ends_with(".goal") || beginning.find("num_ranks") != std::string_view::npos) {
    return TraceFormat::kGoal;
  }
  if (beginning.find("all_gpus:") != std::string_view::npos || plain.ends_with(".txt")) {
    return TraceFormat::kSimai;
  }
  const std::size_t first = beginning.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && beginning[first] == '{' ? TraceFormat::kJson
                                                                    : TraceFormat::kChakra;
}

base::Status read_trace(TraceFormat format, ByteSource& source, NodeSink& sink) {
  if (format == TraceFormat::kChakra) {
    return read_chakra(source, sink);
  }
  const base::Result<std::string> text =
      read_all(source, format == TraceFormat::kJson ? kMaxJsonBytes : kMaxTextBytes);
  if (!text.ok()) {
    return text.status();
  }
  switch (format) {
    case TraceFormat::kJson:
      return read_json_trace(*text, sink);
    case TraceFormat::kGoal: {
      // The reader holds all nodes of a rank, at most one per line, before it hands them out.
      const auto lines = static_cast<std::uint64_t>(std::count(text->begin(), text->end(), '\n'));
      return 2 * kNodeCharge * lines > allowed_graph_bytes(source) ? too_many_nodes()
                                                                   : read_goal(*text, sink);
    }
    default:
      return read_simai(*text, sink);
  }
}

base::Status read_trace_file(const std::string& path, NodeSink& sink) {
  const base::Result<std::unique_ptr<ByteSource>> peek = open_file(path);
  if (!peek.ok()) {
    return peek.status();
  }
  std::array<std::uint8_t, kBeginning> beginning{};
  const base::Result<std::size_t> count = (*peek)->read(beginning);
  if (!count.ok()) {
    return count.status();
  }
  const std::string_view text(reinterpret_cast<const char*>(beginning.data()), *count);
  const base::Result<std::unique_ptr<ByteSource>> source = open_file(path);
  if (!source.ok()) {
    return source.status();
  }
  BoundedSink bounded(**source, sink);
  const base::Status status = read_trace(format_of(path, text), **source, bounded);
  return status.ok() ? status
                     : base::Status(status.code(), fmt::format("{}: {}", path, status.message()));
}

base::Result<World> read_world(const std::string& place, GraphOptions options) {
  const base::Result<std::vector<TraceFile>> files = find_trace_files(place);
  if (!files.ok()) {
    return files.status();
  }
  GraphBuilder builder(options);
  for (const TraceFile& file : *files) {
    builder.set_source(file.path, file.rank);
    if (base::Status status = read_trace_file(file.path, builder); !status.ok()) {
      return status;
    }
  }
  return std::move(builder).finish();
}

}  // namespace spillway::emulate
