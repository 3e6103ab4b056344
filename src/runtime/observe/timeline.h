// SPDX-License-Identifier: Apache-2.0
//
// A rank's operations over time, as a Chrome trace (ui.perfetto.dev opens it): one file per rank,
// and files of several ranks make one picture.
//
//   SPILLWAY_TIMELINE  a path with %r, %c, %h and %p (identity.h)
//
// A rank is a process of the trace, "rank 3 of 8". An operation is an asynchronous event with an id
// of its own, so those that overlap are drawn apart; the time it waited in the queue is an event
// inside it. Times are microseconds since 1970, by the offset between the clocks when the file was
// opened: ranks agree as well as their machines' clocks do.
//
// Every call adds whole events with one write(): a process that dies leaves an array without its
// end, which Perfetto takes. Destroying the timeline closes the array.
//
// One thread, the communicator's. begin(), started() when it leaves the queue, end().
//
// Limits: kMaxEvents, then new operations are left out, and the log says so once. The file is
// locked: two that were given one path do not spoil it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "base/units.h"
#include "net/system_call.h"
#include "runtime/observe/identity.h"
#include "runtime/observe/operation_record.h"

namespace spillway::runtime {

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
  // One event of an operation; `rest` are further members, with a comma in front.
  std::string event(char phase, const std::string& name, const OperationRecord& record,
                    base::Instant at, const std::string& rest = "") const;
  void leave_out();
  void write(const std::string& text);

  net::UniqueFd fd_;
  std::string path_;
  std::uint32_t rank_;
  std::size_t room_;  // events that may still begin
  base::Duration unix_offset_;
  bool failed_ = false;
  bool said_full_ = false;
  std::unordered_map<std::uint64_t, bool> open_;  // by sequence: whether it waits in the queue
};

// Null where there is no path, or the file cannot be had: then with a warning.
std::unique_ptr<Timeline> open_timeline(const std::string& path, const Identity& identity);

}  // namespace spillway::runtime
