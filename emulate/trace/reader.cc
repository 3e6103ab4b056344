// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/reader.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

namespace spillway::emulate {

// ------------------------------------------------------------------ bytes

namespace {

constexpr unsigned kFileBuffer = 1 << 17;
constexpr std::size_t kReadStep = 1 << 20;

// zlib passes plain files through unchanged.
class FileSource final : public ByteSource {
 public:
  FileSource(gzFile file, std::string path) : file_(file), path_(std::move(path)) {}
  ~FileSource() override { gzclose_r(file_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  base::Result<std::size_t> read(base::MutableByteView to) override {
    std::size_t done = 0;
    while (done < to.size()) {
      const auto step = static_cast<unsigned>(std::min(to.size() - done, kReadStep));
      const int count = gzread(file_, to.data() + done, step);
      if (count < 0 || (count == 0 && !ended_well())) {
        return broken();
      }
      if (count == 0) {
        break;
      }
      done += static_cast<std::size_t>(count);
      if (base::Status status = check_limits(); !status.ok()) {
        return status;
      }
    }
    return done;
  }
  std::optional<std::uint64_t> packed_bytes() const override {
    return gzdirect(file_) != 0 ? std::nullopt
                                : std::optional(static_cast<std::uint64_t>(gzoffset(file_)));
  }

 private:
  base::Status check_limits() const {
    const std::optional<std::uint64_t> packed = packed_bytes();
    if (!packed) {
      return {};
    }
    const auto unpacked = static_cast<std::uint64_t>(gztell(file_));
    if (unpacked > kMaxUnpackedBytes) {
      return unpacks_to_more_than(fmt::format("{} bytes", kMaxUnpackedBytes));
    }
    if (unpacked > kFreeUnpackedBytes && unpacked > kMaxUnpackRatio * *packed) {
      return unpacks_to_more_than(fmt::format("{} times its size", kMaxUnpackRatio));
    }
    return {};
  }
  bool ended_well() const {
    int code = Z_OK;
    gzerror(file_, &code);
    return code == Z_OK || code == Z_STREAM_END;
  }
  base::Status broken() const {
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    return {
        base::StatusCode::kMalformed,
        fmt::format("{} cannot be read: {}", path_, code == Z_ERRNO ? std::strerror(errno) : text)};
  }

  gzFile file_;
  std::string path_;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(base::ByteView bytes) : bytes_(bytes) {}
  base::Result<std::size_t> read(base::MutableByteView to) override {
    const std::size_t count = std::min(to.size(), bytes_.size());
    std::copy_n(bytes_.begin(), count, to.begin());
    bytes_ = bytes_.subspan(count);
    return count;
  }

 private:
  base::ByteView bytes_;
};

}  // namespace

base::Result<std::unique_ptr<ByteSource>> open_file(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    return base::invalid_argument(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  gzbuffer(file, kFileBuffer);
  return std::unique_ptr<ByteSource>(std::make_unique<FileSource>(file, path));
}

base::Status unpacks_to_more_than(const std::string& limit) {
  return {
      base::StatusCode::kLimitExceeded,
      fmt::format("the file unpacks to more than {}: if you trust it, unpack it with gunzip and "
                  "pass the unpacked file",
                  limit)};
}

std::unique_ptr<ByteSource> memory_source(base::ByteView bytes) {
  return std::make_unique<MemorySource>(bytes);
}

base::Result<std::string> read_all(ByteSource& source, std::size_t most) {
  std::string text;
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + kReadStep);
    const base::Result<std::size_t> count =
        source.read({reinterpret_cast<std::uint8_t*>(text.data()) + before, kReadStep});
    if (!count.ok()) {
      return count.status();
    }
    text.resize(before + *count);
    if (text.size() > most) {
      return base::Status(base::StatusCode::kLimitExceeded,
                          fmt::format("the trace is longer than {} bytes", most));
    }
    if (*count < kReadStep) {
      return text;
    }
  }
}

// ------------------------------------------------------------------ places and formats

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

// True for hidden files, such as the "._" ones that macOS writes beside each file.
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
    return base::invalid_argument(
        fmt::format("no trace at {}: there is no such file, nor {}.0.et, {}.0.json or the like",
                    place, place, place));
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

// The memory that nodes may take, for the part of the file that was read.
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
            fmt::format("{} has several traces, {} and {}: name one of them by its prefix", place,
                        prefix, number->prefix));
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

// ------------------------------------------------------------------ several jobs as one trace

base::Status RankCounter::on_rank(const RankInfo& info) {
  const std::uint32_t rank = info.rank.value_or(default_rank_);
  if (rank >= kMaxTraceRanks) {
    return base::invalid_argument(
        fmt::format("rank {} is beyond the limit of {} ranks", rank, kMaxTraceRanks));
  }
  ranks_ = std::max({ranks_, rank + 1, std::min(info.world.value_or(0), kMaxTraceRanks)});
  return {};
}

JobMerger::JobMerger(const std::vector<std::uint32_t>& ranks, MergeOrder order, NodeSink& out)
    : merged_ranks_(ranks.size()), out_(out) {
  if (order == MergeOrder::kConsecutive) {
    for (std::size_t job = 0; job < ranks.size(); ++job) {
      for (std::uint32_t rank = 0; rank < ranks[job]; ++rank) {
        merged_ranks_[job].push_back(world_++);
      }
    }
    return;
  }
  const std::uint32_t most = ranks.empty() ? 0 : *std::ranges::max_element(ranks);
  for (std::uint32_t rank = 0; rank < most; ++rank) {
    for (std::size_t job = 0; job < ranks.size(); ++job) {
      if (rank < ranks[job]) {
        merged_ranks_[job].push_back(world_++);
      }
    }
  }
}

void JobMerger::set_source(std::size_t job, std::uint32_t rank) {
  job_ = job;
  default_rank_ = rank;
}

base::Result<std::uint32_t> JobMerger::merged_rank_of(std::uint32_t rank) const {
  if (rank >= merged_ranks_[job_].size()) {
    return base::invalid_argument(fmt::format("the trace names rank {} of a job of {} ranks", rank,
                                              merged_ranks_[job_].size()));
  }
  return merged_ranks_[job_][rank];
}

std::string JobMerger::merged_name_of(const std::string& group) const {
  return fmt::format("{}/{}", job_, group);
}

base::Status JobMerger::on_rank(const RankInfo& info) {
  const base::Result<std::uint32_t> place = merged_rank_of(info.rank.value_or(default_rank_));
  if (!place.ok()) {
    return place.status();
  }
  RankInfo moved{.version = info.version, .rank = *place, .world = world_, .groups = {}};
  std::vector<std::uint32_t> all = merged_ranks_[job_];
  std::ranges::sort(all);
  moved.groups.push_back({merged_name_of(""), std::move(all)});
  for (const GroupInfo& group : info.groups) {
    GroupInfo& made = moved.groups.emplace_back(GroupInfo{merged_name_of(group.name), {}});
    for (const std::uint32_t rank : group.ranks) {
      const base::Result<std::uint32_t> member = merged_rank_of(rank);
      if (!member.ok()) {
        return member.status();
      }
      made.ranks.push_back(*member);
    }
  }
  return out_.on_rank(moved);
}

base::Status JobMerger::on_node(const Node& node) {
  node_ = node;
  if (node.kind == NodeKind::kCollective) {
    node_.group = merged_name_of(node.group);
    const base::Result<std::uint32_t> root = merged_rank_of(node.root);
    if (!root.ok()) {
      return root.status();
    }
    node_.root = *root;
  }
  if (node.peer) {
    const base::Result<std::uint32_t> peer = merged_rank_of(*node.peer);
    if (!peer.ok()) {
      return peer.status();
    }
    node_.peer = *peer;
  }
  return out_.on_node(node_);
}

}  // namespace spillway::emulate
