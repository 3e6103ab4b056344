// SPDX-License-Identifier: Apache-2.0
//
// A rank's operations over time, as a Chrome trace for ui.perfetto.dev: one file per rank. The
// files of several ranks can be viewed together.
//
//   SPILLWAY_TIMELINE  a path with %r, %c, %h and %p (log.h)
//
// A rank is a process of the trace, "rank 3 of 8". An operation is an asynchronous event with its
// own id, so overlapping ones are drawn apart; its queue time is an event inside it. Times are
// microseconds since 1970, from the clock offset at the opening of the file. Ranks agree as well as
// their machines' clocks do.
//
// Every call adds whole events with one write(). A process that dies leaves an unterminated array,
// which Perfetto accepts. The destructor closes the array.
//
// One thread, the communicator's. Call begin(), then started() when the operation leaves the queue,
// then end().
//
// Limits: kMaxEvents; later operations are left out, and the log says so once. The file is locked,
// so two timelines with the same path cannot corrupt it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "base/units.h"
#include "net/system_call.h"
#include "observe/log.h"
#include "observe/operation_record.h"

namespace spillway::observe {

class Timeline {
 public:
  static constexpr std::size_t kMaxEvents = 1'000'000;

  static base::Result<std::unique_ptr<Timeline>> open(const std::string& path,
                                                      const Identity& identity,
                                                      std::size_t most_events = kMaxEvents);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  void begin(const OperationRecord& record);
  void started(const OperationRecord& record);
  void end(const OperationRecord& record);

 private:
  Timeline(net::UniqueFd fd, const std::string& path, const Identity& identity,
           std::size_t most_events);

  void write_names(const Identity& identity);
  // One event of an operation; `rest` holds further members, with a leading comma.
  std::string event(char phase, const std::string& name, const OperationRecord& record,
                    base::Instant at, const std::string& rest = "") const;
  void leave_out();
  void write(const std::string& text);

  net::UniqueFd fd_;
  std::string path_;
  std::uint32_t rank_;
  std::size_t room_;  // events that still fit
  base::Duration unix_offset_;
  bool failed_ = false;
  bool said_full_ = false;
  std::unordered_map<std::uint64_t, bool> open_;  // by sequence: true while queued
};

// Null if there is no path, or (with a warning) if the file cannot be opened.
std::unique_ptr<Timeline> open_timeline(const std::string& path, const Identity& identity);

}  // namespace spillway::observe
