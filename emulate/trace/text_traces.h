// SPDX-License-Identifier: Apache-2.0
//
// Two text formats of traces, each with all ranks in one file.
//
// GOAL (LogGOPSim, ATLAHS):
//
//   num_ranks 2
//   rank 0 {
//   l1: calc 100                      nanoseconds
//   l2: send 10b to 1 tag 0           `cpu n` and `nic n` after a statement are skipped
//   l3: recv 10b from 1 tag 0
//   l2 requires l1                    l2 runs when l1 has ended; irequires (when l1 has begun)
//   }                                 is treated as requires
//
// A label's number is that of its statement.
//
// SimAI (and AICB):
//
//   HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 1 ga: 1
//     all_gpus: 32 ...                one line
//   2                                 rows
//   name -1 fwd_ns COMM bytes input_grad_ns COMM bytes weight_grad_ns COMM bytes update_ns
//
// Every rank runs all rows one after another: forward from the first to the last, then back to the
// first. A weight gradient's communication runs beside what follows; the updates wait for all of
// it. Communication is among the tensor-parallel ranks, for weight gradients among the
// data-parallel ones; a suffix _EP or _DP_EP changes that. Ranks are numbered tensor-parallel
// first, then data-parallel, then by pipeline stage. The rows do not contain transfers between
// stages (pp_comm), so these are left out.
//
// Unknown text is an error that quotes the line. Limits: kMaxTextBytes, kMaxTraceRanks;
// kMaxSimaiNodes and kMaxSimaiMembers over all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "emulate/trace/node.h"

namespace spillway::emulate {

inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;
inline constexpr std::uint64_t kMaxSimaiNodes = 200'000'000;
inline constexpr std::uint64_t kMaxSimaiMembers = 1'500'000'000;

base::Status read_goal(std::string_view text, NodeSink& sink);
base::Status read_simai(std::string_view text, NodeSink& sink);

}  // namespace spillway::emulate
