// SPDX-License-Identifier: Apache-2.0
//
// A rank's work as a Chakra execution trace, which `spillway emulate` can replay.
//
//   SPILLWAY_EXECUTION_TRACE  a folder; rank 3 writes trace.3.et in it
//
// Operations are nodes with group, size and duration. Between them are computing nodes: what a
// thread did from its last call, or the end of its last wait for an operation, to its next call or
// wait. A thread's computing nodes form a chain. An operation depends on what its thread computed
// before the call. Computing depends on the operations that its thread waited for. Threads that
// only wait are left out: they pass results on to others.
//
// All communicators of a process write into one trace. The first one with all ranks of the job is
// the unnamed group. Others are known by name, so communicators with different members need
// different names. In such groups, peers of messages and roots are ranks of the group. A trace
// cannot express that, so those messages have no other end.
//
// Nodes are written in call order, each once all earlier nodes are done, in batches of some
// kilobytes and when a communicator closes. A killed process leaves what was written.
//
// Any thread. Limits: after kMaxRecorded nodes the trace ends, and the log says so; kMaxThreads.
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
#include "collective/operation.h"
#include "net/system_call.h"
#include "observe/chakra.h"
#include "observe/log.h"

namespace spillway::observe {

// Is told when a caller waits for a request and when the request ends.

class RequestWatcher {
 public:
  virtual ~RequestWatcher() = default;
  // Called on the waiting thread. `is_over`: the operation ended, not only the wait.
  virtual void on_wait(base::Instant began, base::Instant ended, bool is_over) = 0;
  // Called once, on the communicator's thread, before any waiter returns.
  virtual void on_end(base::Instant at) = 0;
};

class ExecutionTrace : public std::enable_shared_from_this<ExecutionTrace> {
 public:
  static constexpr std::uint64_t kMaxRecorded = 50'000'000;
  static constexpr std::size_t kMaxThreads = 1024;

  // The process's trace for this rank, created if needed. The launcher's rank in the job takes
  // precedence over the communicator's.
  static base::Result<std::shared_ptr<ExecutionTrace>> open(const std::string& folder,
                                                            const base::Environment& environment,
                                                            const Identity& identity);
  ~ExecutionTrace();
  ExecutionTrace(const ExecutionTrace&) = delete;
  ExecutionTrace& operator=(const ExecutionTrace&) = delete;

  // The group name of a new communicator: "" for the first with all ranks.
  std::string group_for(const Identity& identity);
  // Records a call by the current thread. The caller attaches the watcher to the request.
  std::shared_ptr<RequestWatcher> on_call(const collective::Operation& operation,
                                          const collective::Group& group, const std::string& name);
  // Writes all finished nodes that can be written.
  void flush();

 private:
  class Watcher;
  struct Thread {
    base::Instant last{};              // last call, or end of the last wait
    std::vector<std::uint64_t> after;  // dependencies of its next computing node
    bool is_first = false;             // the first thread that called
  };
  struct Recorded {
    chakra::Node node;
    bool is_open = false;
  };

  ExecutionTrace(net::UniqueFd fd, std::string path, std::uint32_t rank, std::uint32_t world);

  void on_wait(std::uint64_t id, base::Instant began, base::Instant ended, bool is_over);
  void on_end(std::uint64_t id, base::Instant at);
  // Adds the thread's computing until `now`; its next operation depends on it.
  void add_computing(Thread& thread, base::Instant now);
  void write_ready(bool all);
  void write_out();

  net::UniqueFd fd_;
  std::string path_;
  std::uint32_t rank_;
  std::uint32_t world_;
  base::MonotonicClock clock_;
  base::Instant begun_;
  std::mutex mutex_;  // guards all members below
  std::unordered_map<std::thread::id, Thread> threads_;
  std::deque<Recorded> nodes_;  // not yet written; the first has id first_id_
  std::uint64_t first_id_ = 0;
  bool has_everybody_ = false;
  bool is_full_ = false;
  bool failed_ = false;
  chakra::Encoder encoder_;
  std::string bytes_;
};

}  // namespace spillway::observe
