// SPDX-License-Identifier: Apache-2.0
#include "lab/packet_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "base/chrome_events.h"
#include "dataplane/port_config.h"

namespace spillway::lab {
namespace {

constexpr std::size_t kPieceBytes = 1 << 20;
constexpr std::string_view kFabricNote =
    "The fabric ran in user space and tells nothing of single packets: bars named fabric reach "
    "from "
    "a packet's leaving to its arrival.";

// Process numbers: hosts from 1, what leads to them from kFirstPort.
constexpr std::uint32_t kFirstHost = 1;
constexpr std::uint32_t kFirstPort = 1001;

enum class Stage : std::uint8_t { kLeaving, kInside, kArriving };

struct Bar {
  base::Instant start;
  base::Instant end;
  std::uint32_t way = 0;
  Stage stage = Stage::kLeaving;
};

std::string_view type_name(const spillway_packet_header& header) {
  switch (spillway_type_of(header.version_type)) {
    case SPILLWAY_TYPE_DATA:
      return "DATA";
    case SPILLWAY_TYPE_PROBE:
      return "PROBE";
    case SPILLWAY_TYPE_STOP:
      return "STOP";
    case SPILLWAY_TYPE_BITMAP:
      return "BITMAP";
    case SPILLWAY_TYPE_CREDIT:
      return "CREDIT";
    default:
      return "WAIT";
  }
}

// "DATA 1>0 step 3 bucket 0 shard 2 #17"
std::string packet_name(const PacketWay& way) {
  const spillway_packet_header header = way.header();
  std::string name =
      fmt::format("{} {}>{} step {} bucket {} shard {}", type_name(header), +header.source,
                  way.to(), +header.step, +header.bucket, +header.shard);
  if (spillway_type_of(header.version_type) == SPILLWAY_TYPE_DATA) {
    name += fmt::format(" #{}", +header.packet);
  }
  return name;
}

std::string queue_name(unsigned queue) {
  return queue == SPILLWAY_CONTROL_QUEUE ? "control queue" : fmt::format("queue {}", queue);
}

// ------------------------------------------------------------------ bars

base::Instant end_inside(const PacketWay& way) {
  const base::Instant start = *way.inside_from();
  const bool arrived = way.arrived != nullptr && way.arrived->at > start;
  return arrived ? way.arrived->at : start + kMoment;
}

std::vector<Bar> bars_of(const std::vector<PacketWay>& ways) {
  std::vector<Bar> bars;
  for (std::uint32_t i = 0; i < ways.size(); ++i) {
    const PacketWay& way = ways[i];
    if (way.left != nullptr) {
      bars.push_back({way.left->at, way.left->at + kMoment, i, Stage::kLeaving});
    }
    if (way.inside_from()) {
      bars.push_back({*way.inside_from(), end_inside(way), i, Stage::kInside});
    }
    if (way.arrived != nullptr) {
      bars.push_back({way.arrived->at, way.arrived->at + kMoment, i, Stage::kArriving});
    }
  }
  std::ranges::stable_sort(bars, {}, &Bar::start);
  return bars;
}

std::uint32_t process_of(const Bar& bar, const PacketWay& way) {
  switch (bar.stage) {
    case Stage::kLeaving:
      return kFirstHost + way.left->host;
    case Stage::kInside:
      return kFirstPort + way.to();
    case Stage::kArriving:
      break;
  }
  return kFirstHost + way.arrived->host;
}

std::string_view name_inside(const PacketWay& way, bool has_switch) {
  if (way.decided == nullptr) {
    if (way.arrived != nullptr) {
      return has_switch ? "not told" : "fabric";
    }
    return has_switch ? "lost before the switch" : "lost in the fabric";
  }
  return way.decided->is_lost != 0 ? "lost on the link"
                                   : dataplane::reason_name(static_cast<spillway_reason>(
                                         way.decided->reason % SPILLWAY_REASONS));
}

std::string arguments_of_decision(const PacketWay& way) {
  const spillway_event& event = *way.decided;
  return fmt::format(
      R"(,"bytes":{},"bytes_left":{},"queued":{},"queue":"{}","importance":{},"priority":{},"ecn":{})",
      event.bytes, event.bytes_left, event.queued, queue_name(event.queue),
      spillway_importance_of(event.header.service), spillway_priority_of(event.header.service),
      event.ecn);
}

std::string arguments_inside(const PacketWay& way, bool awaits) {
  std::string text = fmt::format(R"("packet":"{}")", packet_name(way));
  if (way.decided != nullptr) {
    text += arguments_of_decision(way);
  }
  if (awaits && way.arrived == nullptr && !way.is_dropped()) {
    text += R"(,"arrived":false)";
  }
  return text;
}

std::string arguments_of_arrival(const PacketWay& way, const PacketLog& log) {
  const PacketOutcome outcome = outcome_of(way, log);
  const std::string_view as = outcome == PacketOutcome::kUnseen    ? "unknown"
                              : outcome == PacketOutcome::kTrimmed ? "trimmed"
                                                                   : "whole";
  return fmt::format(R"("bytes":{},"arrived":"{}","ecn":{})", way.arrived->bytes, as,
                     way.arrived->ecn);
}

// How an arrow goes on at a bar: it starts at the first of a packet's bars and ends at the last. A
// packet with one bar has none.
std::optional<char> arrow_at(Stage stage, const PacketWay& way) {
  const bool is_first = stage == Stage::kLeaving ||
                        (way.left == nullptr && (stage == Stage::kInside || !way.inside_from()));
  const bool is_last = stage == Stage::kArriving ||
                       (way.arrived == nullptr && way.inside_from() && stage == Stage::kInside);
  if (is_first && is_last) {
    return std::nullopt;
  }
  return is_first ? 's' : is_last ? 'f' : 't';
}

// ------------------------------------------------------------------ writing

class TraceWriter {
 public:
  TraceWriter(const std::vector<PacketWay>& ways, const PacketLog& log, const WriteText& write)
      : ways_(ways),
        log_(log),
        write_(write),
        zero_(ways.empty() ? base::Instant() : ways.front().begin()) {}

  void write() {
    const bool has_note = log_.ports.empty() && !log_.hosts.empty();
    text_ =
        fmt::format(R"({{"displayTimeUnit":"ns","otherData":{{"note":{},"packets left out":{}}},)",
                    base::json_quoted(has_note ? kFabricNote : ""), log_.left_out);
    text_ += "\"traceEvents\":[\n";
    name_processes();
    for (const Bar& bar : bars_of(ways_)) {
      add_bar(bar);
    }
    text_ += "\n]}\n";
    write_(text_);
  }

 private:
  // One event: the braces around `members` and what separates it from the one before.
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

  // What leaves, waits and arrives at one place is in different lanes.
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
    const PacketWay& way = ways_[bar.way];
    const std::uint32_t process = process_of(bar, way);
    const std::size_t thread = thread_of(bar, process);
    add(R"("ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}})",
        name_of(bar, way), process, thread, time(bar.start),
        base::microseconds_of(bar.end - bar.start), arguments_of(bar, way));
    add_arrow(bar, process, thread);
    if (bar.stage == Stage::kInside && way.decided != nullptr) {
      add_counter(*way.decided, bar.start);
    }
  }

  std::string name_of(const Bar& bar, const PacketWay& way) const {
    return bar.stage == Stage::kInside ? std::string(name_inside(way, !log_.ports.empty()))
                                       : packet_name(way);
  }

  std::string arguments_of(const Bar& bar, const PacketWay& way) const {
    switch (bar.stage) {
      case Stage::kLeaving:
        return fmt::format(R"("bytes":{},"ecn":{})", way.left->bytes, way.left->ecn);
      case Stage::kInside:
        return arguments_inside(way, !log_.hosts.empty());
      case Stage::kArriving:
        break;
    }
    return arguments_of_arrival(way, log_);
  }

  void add_arrow(const Bar& bar, std::uint32_t process, std::size_t thread) {
    if (const std::optional<char> kind = arrow_at(bar.stage, ways_[bar.way])) {
      add(R"("ph":"{}","bp":"e","cat":"packet","name":"packet","id":{},"pid":{},"tid":{},"ts":{:.3f})",
          *kind, bar.way, process, thread, time(bar.start));
    }
  }

  // `queued` is told of the queue that a packet belongs to: of one that went elsewhere, cut or
  // whole, the event does not say which that is.
  void add_counter(const spillway_event& event, base::Instant at) {
    if (event.is_data != 0 && event.queue == SPILLWAY_CONTROL_QUEUE) {
      return;
    }
    add(R"("ph":"C","name":"bytes in {}","pid":{},"ts":{:.3f},"args":{{"bytes":{}}})",
        queue_name(event.queue), kFirstPort + event.port, time(at), event.queued);
  }

  const std::vector<PacketWay>& ways_;
  const PacketLog& log_;
  const WriteText& write_;
  base::Instant zero_;
  std::string text_;
  bool is_first_ = true;
  std::map<std::pair<std::uint32_t, std::size_t>, base::TraceLanes> lanes_;
  std::set<std::pair<std::uint32_t, std::size_t>> named_;
};

}  // namespace

void write_packet_trace(const std::vector<PacketWay>& ways, const PacketLog& log,
                        const WriteText& write) {
  TraceWriter(ways, log, write).write();
}

}  // namespace spillway::lab
