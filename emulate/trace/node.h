// SPDX-License-Identifier: Apache-2.0
//
// Nodes of traces (chakra/node.h) under this folder's namespace.
#pragma once

#include "observe/chakra/node.h"

namespace spillway::emulate {

using chakra::bounded_duration;
using chakra::bounded_microseconds;
using chakra::collective_kind_name;
using chakra::CollectiveKind;
using chakra::GroupInfo;
using chakra::kCollectiveKinds;
using chakra::kMaxNodeDuration;
using chakra::kMaxTraceRanks;
using chakra::Node;
using chakra::node_kind_name;
using chakra::NodeKind;
using chakra::NodeSink;
using chakra::parse_collective_kind;
using chakra::RankInfo;

}  // namespace spillway::emulate
