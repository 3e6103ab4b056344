// SPDX-License-Identifier: Apache-2.0
//
// Packets' paths as a Chrome trace (chrome://tracing, ui.perfetto.dev): JSON in which
//
//   a host is a process   with a short bar for every packet that leaves and that arrives
//   a switch port is one  with a bar per packet from the decision to the arrival, named by the
//                         decision; a short bar, named by the reason, if it was dropped
//   an arrow              follows each packet from bar to bar
//   counters              are the bytes in each of a port's queues
//
// If no switch reports, the bar between two hosts is called "fabric" and reaches from departure to
// arrival. Times are microseconds since the first packet. Bars that overlap are in several lanes.
// Instantaneous bars last kMoment, so that arrows find them and people can point at them.
//
// Size: about a kilobyte per packet, written in pieces. Writing the text is pure. A TraceFile is
// made before there is anything to write, so that a path that cannot be written fails at once. One
// thread.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "lab/trace/packet_paths.h"

namespace spillway::lab {

inline constexpr base::Duration kMoment = base::nanoseconds(500);

using WriteText = std::function<void(std::string_view)>;

void write_packet_trace(const std::vector<PacketPath>& paths, const PacketLog& log,
                        const WriteText& write);

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
