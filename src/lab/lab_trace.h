// SPDX-License-Identifier: Apache-2.0
//
// The Chrome trace of one run of a lab, from the opening of its file, before anything runs, to its
// writing when all has ended. One thread, besides the recorder's own.
#pragma once

#include <memory>
#include <span>

#include "base/status.h"
#include "lab/host_plan.h"
#include "lab/packet_recorder.h"
#include "lab/trace_file.h"
#include "lab/trace_summary.h"
#include "net/unique_fd.h"

namespace spillway::lab {

class LabTrace {
 public:
  // On a thread in the fabric's network namespace; `namespaces` are the hosts', `fabric` is null
  // where it runs in user space.
  static base::Result<LabTrace> start(const TraceOptions& options, const HostPlan& plan,
                                      std::span<const net::UniqueFd> namespaces,
                                      const kernel::KernelSwitch* fabric);

  // Once, when the hosts' commands have ended.
  base::Result<TraceSummary> finish() { return file_.write(recorder_->finish()); }

 private:
  LabTrace(TraceFile file, std::unique_ptr<PacketRecorder> recorder)
      : file_(std::move(file)), recorder_(std::move(recorder)) {}

  TraceFile file_;
  std::unique_ptr<PacketRecorder> recorder_;
};

}  // namespace spillway::lab
