// SPDX-License-Identifier: Apache-2.0
#include "observe/timeline.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/own_file.h"
#include "base/text.h"
#include "net/system_call.h"
#include "observe/log.h"
#include "observe/operation_record.h"

namespace spillway::observe {
namespace {

// Begin and end events, for an operation and for its time in the queue.
constexpr std::size_t kEventsPerOperation = 4;
constexpr const char* kQueued = "queued";

std::string in_json(std::string_view text) {
  return base::json_quoted(clean_text(text));
}

// Microseconds as text: a double has too few digits for nanoseconds since 1970.
std::string microseconds_text(base::Duration since_1970) {
  return fmt::format("{}.{:03}", since_1970.count() / 1000, since_1970.count() % 1000);
}

std::string what_was_asked(const OperationRecord& record) {
  return fmt::format(
      R"(,"args":{{"sequence":{},"count":{},"bytes":{},"type":{},"op":{},"algorithm":{},)"
      R"("priority":{}}})",
      record.sequence, record.count, record.bytes, in_json(record.type), in_json(record.op),
      in_json(record.algorithm), record.priority);
}

std::string what_failed(const OperationRecord& record) {
  if (record.error == base::StatusCode::kOk) {
    return "";
  }
  return fmt::format(R"(,"error":"{}","message":{},"culprit_rank":{})",
                     base::status_code_name(record.error), in_json(record.message.data()),
                     record.culprit_rank);
}

std::string what_came_of_it(const OperationRecord& record) {
  const auto* late = record.late_ranks.data();
  return fmt::format(R"(,"args":{{"state":"{}","expected":{},"whole":{},"trimmed":{},"missing":{},)"
                     R"("retransmitted":{},"wire_bytes_sent":{},"contributors":{},"late_count":{},)"
                     R"("late_ranks":[{}]{}}})",
                     operation_state_name(record.state), record.packets_expected,
                     record.packets_whole, record.packets_trimmed, record.packets_missing,
                     record.packets_retransmitted, record.wire_bytes_sent, record.contributors,
                     record.late_count, fmt::join(late, late + record.named_late_ranks(), ","),
                     what_failed(record));
}

}  // namespace

base::Result<std::unique_ptr<Timeline>> Timeline::open(const std::string& path,
                                                       const Identity& identity,
                                                       std::size_t most_events) {
  net::UniqueFd fd(base::open_own_file(path.c_str(), base::Opening::kKeep));
  if (!fd.valid()) {
    return base::not_opened(path, errno, "set SPILLWAY_TIMELINE to a path that can be written");
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return net::system_error(fmt::format("have {} alone", path), errno,
                             "put %r, the rank, into SPILLWAY_TIMELINE, and %c, the communicator's "
                             "name, where there are several");
  }
  if (::ftruncate(fd.get(), 0) != 0 && errno != EINVAL) {  // EINVAL: a pipe or a device
    return net::system_error(fmt::format("empty {}", path), errno);
  }
  return std::unique_ptr<Timeline>(new Timeline(std::move(fd), path, identity, most_events));
}

Timeline::Timeline(net::UniqueFd fd, const std::string& path, const Identity& identity,
                   std::size_t most_events)
    : fd_(std::move(fd)),
      path_(path),
      rank_(identity.rank),
      room_(most_events),
      unix_offset_(base::unix_time_offset()) {
  write_names(identity);
}

Timeline::~Timeline() {
  write("\n]\n");
}

void Timeline::write_names(const Identity& identity) {
  const std::string process = fmt::format(R"("ph":"M","pid":{},"tid":0)", rank_);
  write(
      fmt::format("[\n"
                  R"({{"name":"process_name",{0},"args":{{"name":"rank {1} of {2}"}}}},)"
                  "\n"
                  R"({{"name":"process_sort_index",{0},"args":{{"sort_index":{1}}}}},)"
                  "\n"
                  R"({{"name":"process_labels",{0},"args":{{"labels":{3}}}}})",
                  process, rank_, identity.world,
                  in_json(fmt::format("{} on {}, process {}", identity.communicator, host_name(),
                                      ::getpid()))));
}

std::string Timeline::event(char phase, const std::string& name, const OperationRecord& record,
                            base::Instant at, const std::string& rest) const {
  // A local id: other ranks use the same numbers for other operations.
  return fmt::format(
      ",\n"
      R"({{"ph":"{}","cat":"operation","name":{},"pid":{},"tid":0,"id2":{{"local":"{}"}},)"
      R"("ts":{}{}}})",
      phase, in_json(name), rank_, record.sequence,
      microseconds_text(at.since_zero() + unix_offset_), rest);
}

void Timeline::begin(const OperationRecord& record) {
  if (room_ < kEventsPerOperation) {
    leave_out();
    return;
  }
  room_ -= kEventsPerOperation;  // reserves the end events too
  open_[record.sequence] = true;
  write(event('b', record.kind, record, record.queued, what_was_asked(record)) +
        event('b', kQueued, record, record.queued));
}

void Timeline::started(const OperationRecord& record) {
  const auto found = open_.find(record.sequence);
  if (found != open_.end() && std::exchange(found->second, false)) {
    write(event('e', kQueued, record, record.started));
  }
}

void Timeline::end(const OperationRecord& record) {
  const auto found = open_.find(record.sequence);
  if (found == open_.end()) {
    return;
  }
  const std::string waited =
      found->second ? event('e', kQueued, record, record.finished) : std::string();
  open_.erase(found);
  write(waited + event('e', record.kind, record, record.finished, what_came_of_it(record)));
}

void Timeline::leave_out() {
  if (!std::exchange(said_full_, true)) {
    log_warn("the timeline {} is full: operations from here on are not in it", path_);
  }
}

void Timeline::write(const std::string& text) {
  std::string_view rest = text;
  while (!failed_ && !rest.empty()) {
    const ssize_t written = ::write(fd_.get(), rest.data(), rest.size());
    if (written > 0) {
      rest.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      failed_ = true;
      log_warn("cannot write the timeline {}: {}: it ends here", path_, std::strerror(errno));
    }
  }
}

std::unique_ptr<Timeline> open_timeline(const std::string& path, const Identity& identity) {
  if (path.empty()) {
    return nullptr;
  }
  auto timeline = Timeline::open(path, identity);
  if (!timeline.ok()) {
    log_warn("no timeline: {}", timeline.status().message());
    return nullptr;
  }
  return std::move(timeline).value();
}

}  // namespace spillway::observe
