// SPDX-License-Identifier: Apache-2.0
//
// A file that becomes a Chrome trace (packet_trace.h): made before there is anything to write, so
// that a path that cannot be written is known at once. One thread.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/status.h"
#include "lab/packet_sight.h"
#include "lab/trace_summary.h"

namespace spillway::lab {

class TraceFile {
 public:
  static base::Result<TraceFile> create(const std::string& path);

  base::Result<TraceSummary> write(const PacketLog& log);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  TraceFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace spillway::lab
