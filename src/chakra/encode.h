// SPDX-License-Identifier: Apache-2.0
//
// Nodes and metadata as the bytes of a Chakra file (version 1.0): each message behind its length.
// Which attributes there are is said in emulate/trace/chakra.h, which reads them.
//
// Appends to text that the caller keeps; no I/O. An encoder has scratch memory: one thread each.
#pragma once

#include <string>
#include <vector>

#include "chakra/node.h"

namespace spillway::chakra {

class Encoder {
 public:
  // First, and once.
  void append(const RankInfo& info, std::string& to);
  void append(const Node& node, std::string& to);

 private:
  void append_framed(std::string& to) const;

  std::string message_;
  std::string scratch_;
};

// [{"pg_name": ..., "ranks": [...]}, ...]
std::string process_groups_json(const std::vector<GroupInfo>& groups);

}  // namespace spillway::chakra
