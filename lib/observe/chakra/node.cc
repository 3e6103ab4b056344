// SPDX-License-Identifier: Apache-2.0
#include "observe/chakra/node.h"

#include <array>
#include <cctype>
#include <utility>

namespace spillway::chakra {
namespace {

// Keeps only the letters, in lower case: all spellings of a collective share them.
std::string letters_of(std::string_view text) {
  std::string letters;
  for (const char c : text) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      letters.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    }
  }
  return letters;
}

constexpr std::array<std::pair<std::string_view, CollectiveKind>, 13> kSpellings = {{
    {"allreduce", CollectiveKind::kAllReduce},
    {"allreducecoalesced", CollectiveKind::kAllReduce},
    {"reduce", CollectiveKind::kReduce},
    {"allgather", CollectiveKind::kAllGather},
    {"allgatherbase", CollectiveKind::kAllGather},
    {"gather", CollectiveKind::kGather},
    {"scatter", CollectiveKind::kScatter},
    {"broadcast", CollectiveKind::kBroadcast},
    {"alltoall", CollectiveKind::kAllToAll},
    {"alltoallv", CollectiveKind::kAllToAll},
    {"reducescatter", CollectiveKind::kReduceScatter},
    {"reducescatterbase", CollectiveKind::kReduceScatter},
    {"barrier", CollectiveKind::kBarrier},
}};

}  // namespace

const char* node_kind_name(NodeKind kind) {
  switch (kind) {
    case NodeKind::kCompute:
      return "compute";
    case NodeKind::kSend:
      return "send";
    case NodeKind::kReceive:
      return "receive";
    case NodeKind::kCollective:
      return "collective";
    case NodeKind::kOther:
      break;
  }
  return "other";
}

const char* collective_kind_name(CollectiveKind kind) {
  constexpr std::array<const char*, kCollectiveKinds> names = {
      "all-reduce", "reduce",         "all-gather",           "gather", "scatter", "broadcast",
      "all-to-all", "reduce-scatter", "reduce-scatter-block", "barrier"};
  return names[static_cast<std::size_t>(kind)];
}

std::optional<CollectiveKind> parse_collective_kind(std::string_view text) {
  std::string letters = letters_of(text);
  for (const std::string_view prefix : {"nccl", "c10d", "gloo", "mpi", "ucc"}) {
    if (letters.starts_with(prefix)) {
      letters.erase(0, prefix.size());
    }
  }
  for (const auto& [spelling, kind] : kSpellings) {
    if (letters == spelling) {
      return kind;
    }
  }
  return std::nullopt;
}

void Node::clear() {
  id = 0;
  name.clear();
  kind = NodeKind::kOther;
  bytes.reset();
  collective.reset();
  group.clear();
  root = 0;
  peer.reset();
  tag = 0;
  on_host = false;
  start = base::Duration();
  duration = base::Duration();
  data_deps.clear();
  control_deps.clear();
}

}  // namespace spillway::chakra
