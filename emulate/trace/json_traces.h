// SPDX-License-Identifier: Apache-2.0
//
// Execution traces as JSON, in two formats that the outer member tells apart:
//
//   "workload_graph"  Chakra's JSON form: Id, Name, NodeType, is_cpu_op, runtime (microseconds),
//                     data_deps, comm_type, comm_size, comm_src, comm_dst, comm_tag
//   "nodes"           PyTorch's execution trace (schema 1.0.x), a tree of calls. Each node's caller
//                     is its control dependency. A record_param_comms node that names its
//                     collective becomes one, with the bytes of its input. process_group:init nodes
//                     define the groups. Such traces have no data dependencies between calls, so
//                     communication runs in the order of the program, one after another.
//
// The text is held in memory, but each node is handed out as soon as it has been read. Text that is
// not JSON is an error that names the place. Limits: kMaxJsonBytes, and four million values in a
// node.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"
#include "emulate/trace/node.h"

namespace spillway::emulate {

inline constexpr std::size_t kMaxJsonBytes = std::size_t{1} << 30;

base::Status read_json_trace(std::string_view text, NodeSink& sink);

}  // namespace spillway::emulate
