// SPDX-License-Identifier: Apache-2.0
//
// Limits and settings of the engine (engine.h) and of the runs that it begins (run_factory.h).
// Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/units.h"
#include "collective/entropy/chunk_layout.h"
#include "collective/exact/planner.h"
#include "collective/hosts.h"
#include "collective/operation_run.h"
#include "packetize/packet_plan.h"

namespace spillway::collective {

struct EngineLimits {
  std::size_t running = 256;   // operations of the group at once
  std::size_t waiting = 4096;  // operations of the group that have not begun
  std::size_t pairs = 65'536;  // sends and receives, begun or not
  // Most operations of the group from the oldest that has not ended to the latest that has begun.
  std::uint64_t ahead = std::uint64_t{1} << 20;
  // Messages, sent and received, of running group operations: none begins while there are so many,
  // and none has more itself, apart from two per rank. `pair_messages`: those of sends, and as many
  // of receives. `call_messages`: calls to servers. All sent ones together, and all received ones,
  // fit the endpoint's tables.
  std::size_t messages = 8'000;
  std::size_t pair_messages = 4'096;
  std::size_t call_messages = 2'048;
  // Bytes of large all-reduces between two surveys of what links carry: among so many, a few notes
  // are not felt. The same at all ranks.
  std::size_t survey_bytes = std::size_t{16} << 20;
  std::size_t scratch_kept = 256u << 20;
  std::size_t feedback_tensors = 65536;
};

// How large all-reduces are divided among the ranks that add them up.
enum class ShareRule : std::uint8_t {
  kAutomatic,  // by what their links carry, as the ranks measure it
  kEqual,      // if any rank says so, at all ranks
};

struct EngineConfig {
  Group group;
  packetize::Job job;
  packetize::PacketLimits packet_limits;
  bool are_packets_encrypted = false;
  PeerMemory* memory = nullptr;  // shared with ranks of this machine, if any; outlives the engine
  Hosts hosts{};                 // the ranks that share one, the same at all ranks
  PlanOptions plan{};
  ShareRule shares = ShareRule::kAutomatic;
  // Streams to the other ranks can be opened, beside datagrams; the same at all ranks.
  bool may_stream = false;
  ChunkRule entropy_chunks =
      ChunkRule::kStriped;  // for entropy-coded all-reduces; the same at all ranks
  EngineLimits limits{};
  // Operations and point-to-point messages are numbered from here; the same at all ranks.
  std::uint64_t first_operation = 0;
  // Timeout of operations that have none of their own. The failure names the ranks that were waited
  // for.
  base::Duration operation_timeout = base::seconds(300);
  // Once an operation is this old, all peers are watched, not only those that owe something.
  base::Duration watch_after = base::milliseconds(100);
};

}  // namespace spillway::collective
