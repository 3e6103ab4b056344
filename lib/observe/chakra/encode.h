// SPDX-License-Identifier: Apache-2.0
//
// Encodes nodes and metadata as the bytes of a Chakra file (version 1.0): each message follows its
// length. emulate/trace/chakra.h, which reads them, lists the attributes.
//
// Appends to text that the caller owns; no I/O. An encoder has scratch memory: use one per thread.
#pragma once

#include <string>
#include <vector>

#include "observe/chakra/node.h"

namespace spillway::chakra {

class Encoder {
 public:
  // Call this once, before any node.
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
