// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/own_file.h"
#include "emulate/trace/chakra.h"

namespace spillway::emulate {

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
