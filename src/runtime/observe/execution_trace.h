// SPDX-License-Identifier: Apache-2.0
//
// What a rank does, as a Chakra execution trace that can be replayed (`spillway emulate`).
//
//   SPILLWAY_EXECUTION_TRACE  a folder; the trace of rank 3 is trace.3.et in it
//
// Operations are nodes, with group, size, and how long they took. Between them is computing: what a
// thread did from its last call, or from the end of its last wait for an operation, to its next
// call or wait. So a thread's computing is a chain; an operation depends on what its thread did
// before it was called, and computing on the operations that its thread waited for. Threads that
// only wait, and never call, are left out: they hand on what others wait for.
//
// All communicators of a process write into one trace. The first that has all ranks of the job is
// the group without a name; others are known by theirs, so those with different members should have
// different names. Peers of messages and roots in such groups are ranks of the group, which a
// trace cannot say: messages of them do not have their other end.
//
// Nodes are written in the order of calls, once what is in front of them is over, in runs of some
// kilobytes and when a communicator closes. A process that is killed leaves what was written.
//
// Any thread. Limits: kMaxRecorded nodes, then the trace ends, and the log says so; kMaxThreads.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/status.h"
#include "base/units.h"
#include "chakra/encode.h"
#include "collective/operation.h"
#include "net/system_call.h"
#include "runtime/observe/identity.h"
#include "runtime/request_watcher.h"

namespace spillway::runtime {

class ExecutionTrace : public std::enable_shared_from_this<ExecutionTrace> {
 public:
  static constexpr std::uint64_t kMaxRecorded = 50'000'000;
  static constexpr std::size_t kMaxThreads = 1024;

  // The process's trace of that rank; made if there is none. Who this is in the job: what a
  // launcher said, else the communicator's own numbers.
  static base::Result<std::shared_ptr<ExecutionTrace>> open(const std::string& folder,
                                                            const base::Environment& environment,
                                                            const Identity& identity);
  ~ExecutionTrace();
  ExecutionTrace(const ExecutionTrace&) = delete;
  ExecutionTrace& operator=(const ExecutionTrace&) = delete;

  // The group of a communicator that begins to call: "" for the first with all ranks.
  std::string group_for(const Identity& identity);
  // An operation is called, by this thread, now. The watcher goes to its request.
  std::shared_ptr<RequestWatcher> on_call(const collective::Operation& operation,
                                          const collective::Group& group, const std::string& name);
  // Writes what can be.
  void flush();

 private:
  class Watcher;
  struct Thread {
    base::Instant last{};              // its last call, or the end of its last wait
    std::vector<std::uint64_t> after;  // what its next computing depends on
    bool is_first = false;             // of those that call
  };
  struct Recorded {
    chakra::Node node;
    bool is_open = false;
  };

  ExecutionTrace(net::UniqueFd fd, std::string path, std::uint32_t rank, std::uint32_t world);

  void on_wait(std::uint64_t id, base::Instant began, base::Instant ended, bool is_over);
  void on_end(std::uint64_t id, base::Instant at);
  // What the thread computed until `now`; it then depends on it.
  void add_computing(Thread& thread, base::Instant now);
  void write_ready(bool all);
  void write_out();

  net::UniqueFd fd_;
  std::string path_;
  std::uint32_t rank_;
  std::uint32_t world_;
  base::MonotonicClock clock_;
  base::Instant begun_;
  std::mutex mutex_;  // over all that follows
  std::unordered_map<std::thread::id, Thread> threads_;
  std::deque<Recorded> nodes_;  // that are not written, by id from first_id_ on
  std::uint64_t first_id_ = 0;
  bool has_everybody_ = false;
  bool is_full_ = false;
  bool failed_ = false;
  chakra::Encoder encoder_;
  std::string bytes_;
};

}  // namespace spillway::runtime
