// SPDX-License-Identifier: Apache-2.0
//
// The spans of its memory that one run has staged for ranks of its machine. A span that goes to
// several ranks is staged once and stays until the last of them has it: plans do not write to what
// they are sending, so one copy serves all. One thread; the destructor releases what is left.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "collective/exact/plan.h"
#include "collective/peer_memory.h"

namespace spillway::collective {

class StagedSpans {
 public:
  // The memory outlives this object; it may be null if take() is never called.
  explicit StagedSpans(PeerMemory* memory) : memory_(memory) {}
  ~StagedSpans() { clear(); }
  StagedSpans(const StagedSpans&) = delete;
  StagedSpans& operator=(const StagedSpans&) = delete;

  // Returns where the span's bytes, which lie at `data`, are staged; nothing if there is no room.
  // Each success must be given back once.
  std::optional<std::uint64_t> take(const Span& span, const std::uint8_t* data) {
    const auto found = blocks_.find(key_of(span));
    if (found != blocks_.end()) {
      ++found->second.uses;
      return found->second.offset;
    }
    const std::optional<std::uint64_t> offset = memory_->stage({data, span.bytes});
    if (offset) {
      blocks_.emplace(key_of(span), Block{*offset, 1});
    }
    return offset;
  }
  void give_back(const Span& span) {
    const auto found = blocks_.find(key_of(span));
    if (found != blocks_.end() && --found->second.uses == 0) {
      memory_->release(found->second.offset);
      blocks_.erase(found);
    }
  }
  void clear() {
    for (const auto& [key, block] : blocks_) {
      memory_->release(block.offset);
    }
    blocks_.clear();
  }
  bool empty() const { return blocks_.empty(); }

 private:
  using Key = std::tuple<Region, std::size_t, std::size_t>;
  struct Block {
    std::uint64_t offset = 0;
    std::uint32_t uses = 0;
  };

  static Key key_of(const Span& span) { return {span.region, span.offset, span.bytes}; }

  PeerMemory* memory_;
  std::map<Key, Block> blocks_;
};

}  // namespace spillway::collective
