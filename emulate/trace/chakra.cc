// SPDX-License-Identifier: Apache-2.0
#include "emulate/trace/reader.h"

#include <fmt/format.h>
#include <zlib.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/own_file.h"
#include "observe/chakra.h"

namespace spillway::emulate {

namespace {

using chakra::ProtoField;
using chakra::ProtoReader;
using chakra::read_varint;
using chakra::unzigzag;
using chakra::WireType;

constexpr std::size_t kStep = 1 << 16;

base::Status malformed(const std::string& what) {
  return {base::StatusCode::kMalformed, what};
}

// ------------------------------------------------------------------ frames

// Reads the stream's messages one at a time into a reused buffer.
class Frames {
 public:
  explicit Frames(ByteSource& source) : source_(source), buffer_(kStep) {}

  // Returns false at the end, or if status() is an error.
  bool next(base::ByteView& message);
  const base::Status& status() const { return status_; }
  std::uint64_t offset() const { return offset_; }  // of the latest message

 private:
  // Makes at least `count` bytes available from begin_ on; false if there are fewer.
  bool fill(std::size_t count);
  bool stop(base::Status status) {
    status_ = std::move(status);
    return false;
  }

  ByteSource& source_;
  std::vector<std::uint8_t> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint64_t offset_ = 0;
  bool at_end_ = false;
  base::Status status_;
};

bool Frames::fill(std::size_t count) {
  while (end_ - begin_ < count && !at_end_) {
    if (begin_ > 0) {
      std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
                buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
      end_ -= begin_;
      begin_ = 0;
    }
    // The buffer grows with the bytes that arrive, so a false length costs no memory.
    if (buffer_.size() - end_ < kStep) {
      buffer_.resize(std::max(2 * buffer_.size(), end_ + kStep));
    }
    const base::Result<std::size_t> got =
        source_.read(base::MutableByteView(buffer_).subspan(end_));
    if (!got.ok()) {
      return stop(got.status());
    }
    at_end_ = *got < buffer_.size() - end_;
    end_ += *got;
  }
  return end_ - begin_ >= count;
}

bool Frames::next(base::ByteView& message) {
  fill(10);
  if (!status_.ok() || begin_ == end_) {
    return false;
  }
  base::ByteView head = base::ByteView(buffer_).subspan(begin_, end_ - begin_);
  const std::size_t before = head.size();
  std::uint64_t size = 0;
  if (!read_varint(head, size)) {
    return stop(malformed(fmt::format("byte {}: the length of a message ends early", consumed_)));
  }
  if (size > kMaxMessageBytes) {
    return stop(malformed(fmt::format("byte {}: a message of {} bytes; {} is the limit", consumed_,
                                      size, kMaxMessageBytes)));
  }
  const std::size_t head_bytes = before - head.size();
  begin_ += head_bytes;
  consumed_ += head_bytes;
  offset_ = consumed_;
  if (!fill(static_cast<std::size_t>(size))) {
    return stop(status_.ok()
                    ? malformed(fmt::format("byte {}: the file ends inside a message of {} bytes",
                                            consumed_, size))
                    : status_);
  }
  message = base::ByteView(buffer_).subspan(begin_, static_cast<std::size_t>(size));
  begin_ += static_cast<std::size_t>(size);
  consumed_ += size;
  return true;
}

// ------------------------------------------------------------------ attributes

struct Attribute {
  std::string_view name;
  std::uint32_t arm = 0;
  std::uint64_t value = 0;
  std::string_view text;
};

bool read_attribute(base::ByteView bytes, Attribute& attribute) {
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.next(field)) {
    if (field.number == 1 && field.type == WireType::kBytes) {
      attribute.name = field.text();
    } else if (field.number >= 3 && field.number <= 32) {
      attribute.arm = field.number;
      attribute.value = field.value;
      attribute.text = field.text();
    }
  }
  return reader.ok();
}

// Accepts any integer arm, booleans and whole floating-point numbers.
std::optional<std::int64_t> integer_of(const Attribute& attribute) {
  const auto whole = [](double value) -> std::optional<std::int64_t> {
    constexpr double kLimit = 9.2e18;
    if (!(value > -kLimit && value < kLimit)) {
      return std::nullopt;
    }
    return static_cast<std::int64_t>(value);
  };
  switch (attribute.arm) {
    case 3:
      return whole(std::bit_cast<double>(attribute.value));
    case 5:
      return whole(std::bit_cast<float>(static_cast<std::uint32_t>(attribute.value)));
    case 7:   // int32
    case 9:   // int64
    case 11:  // uint32
    case 13:  // uint64
    case 19:  // fixed32
    case 21:  // fixed64
    case 25:  // sfixed64
    case 27:  // bool
      return static_cast<std::int64_t>(attribute.value);
    case 15:
    case 17:
      return unzigzag(attribute.value);
    case 23:
      return static_cast<std::int32_t>(static_cast<std::uint32_t>(attribute.value));
    default:
      return std::nullopt;
  }
}

// Returns nothing if the value is not a rank, such as -1.
std::optional<std::uint32_t> rank_of(std::int64_t value) {
  if (value < 0 || value >= kMaxTraceRanks) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(value);
}

// ------------------------------------------------------------------ messages

void take_number(const Attribute& attribute, std::int64_t value, Node& node) {
  const std::string_view name = attribute.name;
  if (name == "is_cpu_op") {
    node.on_host = value != 0;
  } else if (name == "comm_size" && value >= 0) {
    node.bytes = static_cast<std::uint64_t>(value);
  } else if (name == "comm_type" && value >= 0 && value < kCollectiveKinds) {
    node.collective = static_cast<CollectiveKind>(value);
  } else if ((name == "comm_dst" && node.kind == NodeKind::kSend) ||
             (name == "comm_src" && node.kind == NodeKind::kReceive)) {
    node.peer = rank_of(value);
  } else if (name == "comm_tag") {
    node.tag = static_cast<std::int32_t>(value);
  } else if (name == "comm_root") {
    node.root = rank_of(value).value_or(0);
  } else if (name == "pg_name") {
    node.group = std::to_string(value);
  } else if (name == "duration_nanos" && value >= 0) {
    node.duration = bounded_duration(value);
  }
}

void take_attribute(const Attribute& attribute, Node& node) {
  if (attribute.arm == 29 && attribute.name == "pg_name") {
    node.group = attribute.text;
  } else if (const auto value = integer_of(attribute)) {
    take_number(attribute, *value, node);
  }
}

NodeKind kind_of(std::uint64_t type) {
  switch (type) {
    case 4:
      return NodeKind::kCompute;
    case 5:
      return NodeKind::kSend;
    case 6:
      return NodeKind::kReceive;
    case 7:
      return NodeKind::kCollective;
    default:
      return NodeKind::kOther;
  }
}

bool take_ids(const ProtoField& field, std::vector<std::uint64_t>& ids) {
  if (field.type == WireType::kVarint) {
    ids.push_back(field.value);
    return true;
  }
  base::ByteView packed = field.bytes;
  std::uint64_t id = 0;
  while (!packed.empty()) {
    if (!read_varint(packed, id)) {
      return false;
    }
    ids.push_back(id);
  }
  return true;
}

// The kind is read first, because comm_src and comm_dst depend on it.
bool read_node_fields(base::ByteView bytes, Node& node) {
  ProtoReader reader(bytes);
  ProtoField field;
  bool ok = true;
  while (ok && reader.next(field)) {
    switch (field.number) {
      case 1:
        node.id = field.value;
        break;
      case 2:
        node.name = field.text();
        break;
      case 3:
        node.kind = kind_of(field.value);
        break;
      case 4:
        ok = take_ids(field, node.control_deps);
        break;
      case 5:
        ok = take_ids(field, node.data_deps);
        break;
      case 6:
        node.start = bounded_microseconds(field.value);
        break;
      case 7:
        node.duration = bounded_microseconds(field.value);
        break;
      default:
        break;
    }
  }
  return ok && reader.ok();
}

bool read_attributes(base::ByteView bytes, Node& node) {
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.next(field)) {
    Attribute attribute;
    if (field.number == 10 && field.type == WireType::kBytes) {
      if (!read_attribute(field.bytes, attribute)) {
        return false;
      }
      take_attribute(attribute, node);
    }
  }
  return reader.ok();
}

bool read_node(base::ByteView bytes, Node& node) {
  node.clear();
  if (!read_node_fields(bytes, node) || !read_attributes(bytes, node)) {
    return false;
  }
  if (node.kind != NodeKind::kCollective) {
    node.collective.reset();  // some files give comm_type for sends and receives too
  }
  return true;
}

bool read_info(base::ByteView bytes, RankInfo& info) {
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.next(field)) {
    Attribute attribute;
    if (field.number == 1) {
      info.version = field.text();
    } else if (field.number == 2 && field.type == WireType::kBytes) {
      if (!read_attribute(field.bytes, attribute)) {
        return false;
      }
      const auto value = integer_of(attribute);
      if (attribute.name == "process_groups") {
        info.groups = parse_process_groups(attribute.text);
      } else if (attribute.name == "rank" && value) {
        info.rank = rank_of(*value);
      } else if (attribute.name == "world_size" && value && *value > 0 &&
                 *value <= kMaxTraceRanks) {
        info.world = static_cast<std::uint32_t>(*value);
      }
    }
  }
  return reader.ok();
}

}  // namespace

base::Status read_chakra(ByteSource& source, NodeSink& sink) {
  Frames frames(source);
  base::ByteView message;
  RankInfo info;
  const auto where = [&frames](const char* what) {
    return malformed(fmt::format("byte {}: {} is malformed", frames.offset(), what));
  };
  if (!frames.next(message)) {
    return frames.status().ok()
               ? malformed("the file is empty; it must begin with a GlobalMetadata message")
               : frames.status();
  }
  if (!read_info(message, info)) {
    return where("the file's GlobalMetadata");
  }
  if (base::Status status = sink.on_rank(info); !status.ok()) {
    return status;
  }
  Node node;
  while (frames.next(message)) {
    if (!read_node(message, node)) {
      return where("a node");
    }
    if (base::Status status = sink.on_node(node); !status.ok()) {
      return status;
    }
  }
  return frames.status();
}

// ------------------------------------------------------------------ writing

class ChakraWriter::File {
 public:
  File(gzFile file, std::string path) : file_(file), path_(std::move(path)) {}
  ~File() {
    if (file_ != nullptr) {
      gzclose_w(file_);
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  base::Status write(std::string_view bytes) {
    if (gzwrite(file_, bytes.data(), static_cast<unsigned>(bytes.size())) !=
        static_cast<int>(bytes.size())) {
      return failed();
    }
    return {};
  }
  base::Status close() {
    const int code = gzclose_w(file_);
    file_ = nullptr;
    return code == Z_OK ? base::Status() : failed();
  }

 private:
  base::Status failed() const {
    return {base::StatusCode::kUnavailable,
            fmt::format("cannot write {}: {}", path_, std::strerror(errno))};
  }

  gzFile file_;
  std::string path_;
};

ChakraWriter::ChakraWriter(std::unique_ptr<File> file) : file_(std::move(file)) {}
ChakraWriter::~ChakraWriter() = default;

base::Result<std::unique_ptr<ChakraWriter>> ChakraWriter::create(const std::string& path) {
  const char* mode = path.ends_with(".gz") ? "wb" : "wbT";  // T: uncompressed
  const int fd =
      base::open_own_file(path.c_str(), base::Opening::kTruncate, base::Readers::kEveryone);
  gzFile file = fd < 0 ? nullptr : gzdopen(fd, mode);
  if (file == nullptr) {
    return base::invalid_argument(base::not_opened(path, errno).message());
  }
  return std::unique_ptr<ChakraWriter>(new ChakraWriter(std::make_unique<File>(file, path)));
}

base::Status ChakraWriter::on_rank(const RankInfo& info) {
  bytes_.clear();
  encoder_.append(info, bytes_);
  return file_->write(bytes_);
}

base::Status ChakraWriter::on_node(const Node& node) {
  bytes_.clear();
  encoder_.append(node, bytes_);
  return file_->write(bytes_);
}

base::Status ChakraWriter::finish() {
  return file_->close();
}

std::vector<GroupInfo> parse_process_groups(std::string_view json_text) {
  std::vector<GroupInfo> groups;
  const nlohmann::json parsed =
      nlohmann::json::parse(json_text.begin(), json_text.end(), nullptr, false);
  if (!parsed.is_array()) {
    return groups;
  }
  for (const nlohmann::json& entry : parsed) {
    if (!entry.is_object() || !entry.contains("pg_name") || !entry.contains("ranks") ||
        !entry["ranks"].is_array()) {
      continue;
    }
    const nlohmann::json& name = entry["pg_name"];
    GroupInfo group{name.is_string() ? name.get<std::string>() : name.dump(), {}};
    for (const nlohmann::json& rank : entry["ranks"]) {
      if (rank.is_number_unsigned() && rank.get<std::uint64_t>() < kMaxTraceRanks) {
        group.ranks.push_back(rank.get<std::uint32_t>());
      }
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace spillway::emulate
