// SPDX-License-Identifier: Apache-2.0
#include "lab/trace_file.h"

#include <fmt/format.h>

#include <cerrno>

#include "lab/packet_trace.h"
#include "lab/packet_ways.h"
#include "net/system_error.h"

namespace spillway::lab {

base::Result<TraceFile> TraceFile::create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return net::system_error(fmt::format("write {}", path), errno);
  }
  return TraceFile(path, file);
}

base::Result<TraceSummary> TraceFile::write(const PacketLog& log) {
  const std::vector<PacketWay> ways = join_ways(log);
  bool is_whole = true;
  write_packet_trace(ways, log, [&](std::string_view text) {
    is_whole &= std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  });
  if (std::fflush(file_.get()) != 0 || !is_whole) {
    return net::system_error(fmt::format("write {}", path_), errno);
  }
  return summarise_ways(ways, log);
}

}  // namespace spillway::lab
