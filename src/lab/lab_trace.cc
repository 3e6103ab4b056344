// SPDX-License-Identifier: Apache-2.0
#include "lab/lab_trace.h"

namespace spillway::lab {

base::Result<LabTrace> LabTrace::start(const TraceOptions& options, const HostPlan& plan,
                                       std::span<const net::UniqueFd> namespaces,
                                       const kernel::KernelSwitch* fabric) {
  if (namespaces.size() != plan.hosts.size()) {
    return base::Status(base::StatusCode::kUnavailable,
                        "packets can be followed where hosts have interfaces of their own: not "
                        "with --isolation none");
  }
  base::Result<TraceFile> file = TraceFile::create(options.path);
  if (!file.ok()) {
    return file.status();
  }
  base::Result<std::unique_ptr<PacketRecorder>> recorder =
      PacketRecorder::start(plan, namespaces, fabric, options.packets);
  if (!recorder.ok()) {
    return recorder.status();
  }
  return LabTrace(std::move(file).value(), std::move(recorder).value());
}

}  // namespace spillway::lab
