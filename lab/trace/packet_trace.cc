// SPDX-License-Identifier: Apache-2.0
#include "lab/trace/packet_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/own_file.h"
#include "base/text.h"
#include "lab/trace/packet_paths.h"
#include "net/system_call.h"
#include "switch/dataplane/port_config.h"

namespace spillway::lab {
namespace {

constexpr std::size_t kPieceBytes = 1 << 20;
constexpr std::string_view kFabricNote =
    "The fabric ran in user space and tells nothing of single packets: bars named fabric reach "
    "from a packet's leaving to its arrival.";

// Process numbers: hosts from kFirstHost, ports that lead to them from kFirstPort.
constexpr std::uint32_t kFirstHost = 1;
constexpr std::uint32_t kFirstPort = 1001;

enum class Stage : std::uint8_t { kLeaving, kInside, kArriving };

struct Bar {
  base::Instant start;
  base::Instant end;
  std::uint32_t path = 0;
  Stage stage = Stage::kLeaving;
};

std::string_view type_name(const spillway_packet_header& header) {
  switch (spillway_type_of(header.version_type)) {
    case SPILLWAY_TYPE_PLANES:
      return "PLANES";
    case SPILLWAY_TYPE_BYTES:
      return "BYTES";
    case SPILLWAY_TYPE_PROBE:
      return "PROBE";
    case SPILLWAY_TYPE_STOP:
      return "STOP";
    case SPILLWAY_TYPE_BITMAP:
      return "BITMAP";
    case SPILLWAY_TYPE_CREDIT:
      return "CREDIT";
    case SPILLWAY_TYPE_WAIT:
      return "WAIT";
    case SPILLWAY_TYPE_LEAVE:
      return "LEAVE";
    default:
      return "unknown";
  }
}

// "PLANES 1>0 operation 3 piece 2 #17": ranks, and low bits of the operation.
std::string packet_name(const PacketPath& path) {
  const spillway_packet_header header = path.header();
  std::string name =
      fmt::format("{} {}>{} operation {} piece {}", type_name(header), +header.source,
                  +header.destination, std::uint32_t{header.operation}, +header.piece);
  if (spillway_is_data_type(spillway_type_of(header.version_type))) {
    name += fmt::format(" #{}", +header.packet);
  }
  return name;
}

std::string queue_name(unsigned queue) {
  return queue == SPILLWAY_CONTROL_QUEUE ? "control queue" : fmt::format("queue {}", queue);
}

// ------------------------------------------------------------------ bars

base::Instant end_inside(const PacketPath& path) {
  const base::Instant start = *path.inside_from();
  const bool arrived = path.arrived != nullptr && path.arrived->at > start;
  return arrived ? path.arrived->at : start + kMoment;
}

std::vector<Bar> bars_of(const std::vector<PacketPath>& paths) {
  std::vector<Bar> bars;
  for (std::uint32_t i = 0; i < paths.size(); ++i) {
    const PacketPath& path = paths[i];
    if (path.left != nullptr) {
      bars.push_back({path.left->at, path.left->at + kMoment, i, Stage::kLeaving});
    }
    if (path.inside_from()) {
      bars.push_back({*path.inside_from(), end_inside(path), i, Stage::kInside});
    }
    if (path.arrived != nullptr) {
      bars.push_back({path.arrived->at, path.arrived->at + kMoment, i, Stage::kArriving});
    }
  }
  std::ranges::stable_sort(bars, {}, &Bar::start);
  return bars;
}

std::uint32_t process_of(const Bar& bar, const PacketPath& path) {
  switch (bar.stage) {
    case Stage::kLeaving:
      return kFirstHost + path.left->host;
    case Stage::kInside:
      return kFirstPort + path.to();
    case Stage::kArriving:
      break;
  }
  return kFirstHost + path.arrived->host;
}

std::string_view name_inside(const PacketPath& path, bool has_switch) {
  if (path.decided == nullptr) {
    if (path.arrived != nullptr) {
      return has_switch ? "not told" : "fabric";
    }
    return has_switch ? "lost before the switch" : "lost in the fabric";
  }
  return path.decided->is_lost != 0 ? "lost on the link"
                                    : dataplane::reason_name(static_cast<spillway_reason>(
                                          path.decided->reason % SPILLWAY_REASONS));
}

std::string arguments_of_decision(const PacketPath& path) {
  const spillway_event& event = *path.decided;
  return fmt::format(
      R"(,"bytes":{},"bytes_left":{},"queued":{},"queue":"{}","importance":{},"priority":{},"ecn":{})",
      event.bytes, event.bytes_left, event.queued, queue_name(event.queue),
      spillway_importance_of(event.header.service), spillway_priority_of(event.header.service),
      event.ecn);
}

std::string arguments_inside(const PacketPath& path, bool awaits) {
  std::string text = fmt::format(R"("packet":"{}")", packet_name(path));
  if (path.decided != nullptr) {
    text += arguments_of_decision(path);
  }
  if (awaits && path.arrived == nullptr && !path.is_dropped()) {
    text += R"(,"arrived":false)";
  }
  return text;
}

std::string arguments_of_arrival(const PacketPath& path, const PacketLog& log) {
  const PacketOutcome outcome = outcome_of(path, log);
  const std::string_view as = outcome == PacketOutcome::kUnseen    ? "unknown"
                              : outcome == PacketOutcome::kTrimmed ? "trimmed"
                                                                   : "whole";
  return fmt::format(R"("bytes":{},"arrived":"{}","ecn":{})", path.arrived->bytes, as,
                     path.arrived->ecn);
}

// Kind of arrow event at a bar: an arrow starts at the first of a packet's bars and ends at the
// last. A packet with one bar has none.
std::optional<char> arrow_at(Stage stage, const PacketPath& path) {
  const bool is_first = stage == Stage::kLeaving ||
                        (path.left == nullptr && (stage == Stage::kInside || !path.inside_from()));
  const bool is_last = stage == Stage::kArriving ||
                       (path.arrived == nullptr && path.inside_from() && stage == Stage::kInside);
  if (is_first && is_last) {
    return std::nullopt;
  }
  return is_first ? 's' : is_last ? 'f' : 't';
}

// ------------------------------------------------------------------ writing

class TraceWriter {
 public:
  TraceWriter(const std::vector<PacketPath>& paths, const PacketLog& log, const WriteText& write)
      : paths_(paths),
        log_(log),
        write_(write),
        zero_(paths.empty() ? base::Instant() : paths.front().begin()) {}

  void write() {
    const bool has_note = log_.ports.empty() && !log_.hosts.empty();
    text_ =
        fmt::format(R"({{"displayTimeUnit":"ns","otherData":{{"note":{},"packets left out":{}}},)",
                    base::json_quoted(has_note ? kFabricNote : ""), log_.left_out);
    text_ += "\"traceEvents\":[\n";
    name_processes();
    for (const Bar& bar : bars_of(paths_)) {
      add_bar(bar);
    }
    text_ += "\n]}\n";
    write_(text_);
  }

 private:
  // Adds one event: braces around `members`, and a separator after the previous event.
  template <typename... Values>
  void add(fmt::format_string<Values...> members, Values&&... values) {
    text_ += is_first_ ? "{" : ",\n{";
    is_first_ = false;
    fmt::format_to(std::back_inserter(text_), members, std::forward<Values>(values)...);
    text_ += '}';
    if (text_.size() >= kPieceBytes) {
      write_(text_);
      text_.clear();
    }
  }

  double time(base::Instant at) const { return base::microseconds_of(at - zero_); }

  void name_processes() {
    for (std::uint32_t host = 0; host < log_.hosts.size(); ++host) {
      name_process(kFirstHost + host, log_.hosts[host]);
      if (log_.ports.empty()) {
        name_process(kFirstPort + host, "fabric->" + log_.hosts[host]);
      }
    }
    for (std::uint32_t port = 0; port < log_.ports.size(); ++port) {
      name_process(kFirstPort + port, log_.ports[port]);
    }
  }

  void name_process(std::uint32_t process, const std::string& name) {
    add(R"("ph":"M","name":"process_name","pid":{},"args":{{"name":{}}})", process,
        base::json_quoted(name));
    add(R"("ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}})", process,
        process);
  }

  // Departures, waiting packets and arrivals at one place go to different lanes.
  std::size_t thread_of(const Bar& bar, std::uint32_t process) {
    constexpr std::size_t kLanesPerStage = 100'000;
    const std::size_t stage = static_cast<std::size_t>(bar.stage);
    const std::size_t thread =
        1 + stage * kLanesPerStage + lanes_[{process, stage}].place(bar.start, bar.end);
    if (named_.insert({process, thread}).second) {
      constexpr const char* kNames[] = {"leaves", "waits", "arrives"};
      add(R"("ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}})", process,
          thread, kNames[stage]);
      add(R"("ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}})",
          process, thread, thread);
    }
    return thread;
  }

  void add_bar(const Bar& bar) {
    const PacketPath& path = paths_[bar.path];
    const std::uint32_t process = process_of(bar, path);
    const std::size_t thread = thread_of(bar, process);
    add(R"("ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}})",
        name_of(bar, path), process, thread, time(bar.start),
        base::microseconds_of(bar.end - bar.start), arguments_of(bar, path));
    add_arrow(bar, process, thread);
    if (bar.stage == Stage::kInside && path.decided != nullptr) {
      add_counter(*path.decided, bar.start);
    }
  }

  std::string name_of(const Bar& bar, const PacketPath& path) const {
    return bar.stage == Stage::kInside ? std::string(name_inside(path, !log_.ports.empty()))
                                       : packet_name(path);
  }

  std::string arguments_of(const Bar& bar, const PacketPath& path) const {
    switch (bar.stage) {
      case Stage::kLeaving:
        return fmt::format(R"("bytes":{},"ecn":{})", path.left->bytes, path.left->ecn);
      case Stage::kInside:
        return arguments_inside(path, !log_.hosts.empty());
      case Stage::kArriving:
        break;
    }
    return arguments_of_arrival(path, log_);
  }

  void add_arrow(const Bar& bar, std::uint32_t process, std::size_t thread) {
    if (const std::optional<char> kind = arrow_at(bar.stage, paths_[bar.path])) {
      add(R"("ph":"{}","bp":"e","cat":"packet","name":"packet","id":{},"pid":{},"tid":{},"ts":{:.3f})",
          *kind, bar.path, process, thread, time(bar.start));
    }
  }

  // `queued` is the length of the queue that a packet belongs to. For a packet in the control queue
  // instead, trimmed or whole, the event does not name its own queue.
  void add_counter(const spillway_event& event, base::Instant at) {
    if (event.is_data != 0 && event.queue == SPILLWAY_CONTROL_QUEUE) {
      return;
    }
    add(R"("ph":"C","name":"bytes in {}","pid":{},"ts":{:.3f},"args":{{"bytes":{}}})",
        queue_name(event.queue), kFirstPort + event.port, time(at), event.queued);
  }

  const std::vector<PacketPath>& paths_;
  const PacketLog& log_;
  const WriteText& write_;
  base::Instant zero_;
  std::string text_;
  bool is_first_ = true;
  std::map<std::pair<std::uint32_t, std::size_t>, base::TraceLanes> lanes_;
  std::set<std::pair<std::uint32_t, std::size_t>> named_;
};

}  // namespace

void write_packet_trace(const std::vector<PacketPath>& paths, const PacketLog& log,
                        const WriteText& write) {
  TraceWriter(paths, log, write).write();
}

base::Result<TraceFile> TraceFile::create(const std::string& path) {
  const int fd =
      base::open_own_file(path.c_str(), base::Opening::kTruncate, base::Readers::kEveryone);
  std::FILE* file = fd < 0 ? nullptr : ::fdopen(fd, "w");
  if (file == nullptr) {
    return base::not_opened(path, errno);
  }
  return TraceFile(path, file);
}

base::Result<TraceSummary> TraceFile::write(const PacketLog& log) {
  const std::vector<PacketPath> paths = join_paths(log);
  bool is_whole = true;
  write_packet_trace(paths, log, [&](std::string_view text) {
    is_whole &= std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  });
  if (std::fflush(file_.get()) != 0 || !is_whole) {
    return net::system_error(fmt::format("write {}", path_), errno);
  }
  return summarise_paths(paths, log);
}

}  // namespace spillway::lab
