// SPDX-License-Identifier: Apache-2.0
//
// A bounded hash table from (message, peer) to a slot. A slot keeps its place, so that timers and
// lists may name it by number. Numbers are used again after erase(); code that keeps one must
// notice (slots carry what it needs for that).
//
// Grows by doubling up to its limit and no further. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/check.h"
#include "wire/data_packet.h"

namespace spillway::transport {

struct MessageKey {
  wire::MessageId message;
  std::uint16_t peer = 0;

  friend bool operator==(const MessageKey&, const MessageKey&) = default;
};

inline std::uint64_t hash_of(const MessageKey& key) {
  const wire::MessageId& id = key.message;
  const std::uint64_t place = (id.operation << 16 | id.piece) + id.signature;
  const std::uint64_t who = std::uint64_t{id.source} << 24 | std::uint64_t{key.peer} << 8 |
                            static_cast<std::uint64_t>(id.phase);
  const std::uint64_t mixed = place * 0x9E3779B97F4A7C15ULL ^ who * 0xC2B2AE3D27D4EB4FULL;
  return (mixed ^ mixed >> 32) * 0x9E3779B97F4A7C15ULL >> 24;
}

template <typename Message>
class MessageTable {
 public:
  static constexpr std::uint32_t kNoSlot = UINT32_MAX;

  explicit MessageTable(std::uint32_t limit) : limit_(limit), index_(kSmallest, kNoSlot) {}

  std::uint32_t size() const { return size_; }
  bool is_full() const { return size_ == limit_; }
  Message& operator[](std::uint32_t slot) { return slots_[slot].message; }
  bool is_live(std::uint32_t slot) const { return slot < slots_.size() && slots_[slot].live; }

  std::uint32_t find(const MessageKey& key) const {
    for (std::size_t at = home(key);; at = next(at)) {
      const std::uint32_t slot = index_[at];
      if (slot == kNoSlot || slots_[slot].key == key) {
        return slot;
      }
    }
  }

  // Inserts a fresh message under a key that is not there; the table must not be full.
  std::uint32_t insert(const MessageKey& key) {
    SPILLWAY_CHECK(!is_full());
    if ((size_ + 1) * 2 > index_.size()) {
      rebuild_index(index_.size() * 2);
    }
    const std::uint32_t slot = take_slot();
    slots_[slot] = {.key = key, .message = Message(), .live = true};
    place(slot);
    ++size_;
    return slot;
  }

  void erase(std::uint32_t slot) {
    SPILLWAY_CHECK(is_live(slot));
    unplace(slot);
    slots_[slot] = {};
    free_.push_back(slot);
    --size_;
  }

  // Visits live slots in their order.
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].live) {
        visit(slot);
      }
    }
  }

  std::size_t memory_bytes() const {
    return slots_.size() * sizeof(Slot) + index_.size() * sizeof(std::uint32_t);
  }

 private:
  struct Slot {
    MessageKey key;
    Message message{};
    bool live = false;
  };
  static constexpr std::size_t kSmallest = 16;  // a power of two

  std::size_t home(const MessageKey& key) const { return hash_of(key) & (index_.size() - 1); }
  std::size_t next(std::size_t at) const { return (at + 1) & (index_.size() - 1); }

  std::uint32_t take_slot() {
    if (free_.empty()) {
      slots_.emplace_back();
      return static_cast<std::uint32_t>(slots_.size() - 1);
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }

  void place(std::uint32_t slot) {
    std::size_t at = home(slots_[slot].key);
    while (index_[at] != kNoSlot) {
      at = next(at);
    }
    index_[at] = slot;
  }

  // Closes the gap, so that linear probing never meets a hole in the middle of a run.
  void unplace(std::uint32_t slot) {
    std::size_t gap = home(slots_[slot].key);
    while (index_[gap] != slot) {
      gap = next(gap);
    }
    for (std::size_t at = next(gap); index_[at] != kNoSlot; at = next(at)) {
      const std::size_t wanted = home(slots_[index_[at]].key);
      const std::size_t mask = index_.size() - 1;
      if (((at - wanted) & mask) >= ((at - gap) & mask)) {
        index_[gap] = index_[at];
        gap = at;
      }
    }
    index_[gap] = kNoSlot;
  }

  void rebuild_index(std::size_t size) {
    index_.assign(size, kNoSlot);
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].live) {
        place(slot);
      }
    }
  }

  std::uint32_t limit_;
  std::uint32_t size_ = 0;
  std::vector<std::uint32_t> index_;
  std::deque<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace spillway::transport
