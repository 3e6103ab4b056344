// SPDX-License-Identifier: Apache-2.0
//
// A bounded hash table from (message, peer) to a slot. A slot keeps its place, so that timers and
// lists may name it by number. Numbers are used again after erase(); code that keeps one must
// notice (slots carry what it needs for that).
//
// Grows by doubling up to its limit and no further. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "wire/control_packet.h"
#include "wire/data_packet.h"

namespace spillway::transport {

struct MessageKey {
  wire::MessageId message;
  std::uint16_t peer = 0;

  friend bool operator==(const MessageKey&, const MessageKey&) = default;
};

// Without the signature, which few packets say.
inline std::uint64_t hash_of(const MessageKey& key) {
  const wire::MessageId& id = key.message;
  const std::uint64_t place = id.operation << 16 | id.piece;
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
    return find_if(key, [&](const MessageKey& each) { return each == key; });
  }
  // A message with this key, whatever its signature.
  std::uint32_t find_alike(const MessageKey& key) const {
    return find_if(key, [&](const MessageKey& each) {
      return each.peer == key.peer && each.message.is_alike(key.message);
    });
  }
  const wire::MessageId& id_of(std::uint32_t slot) const { return slots_[slot].key.message; }

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

  template <typename Matches>
  std::uint32_t find_if(const MessageKey& key, const Matches& matches) const {
    for (std::size_t at = home(key);; at = next(at)) {
      const std::uint32_t slot = index_[at];
      if (slot == kNoSlot || matches(slots_[slot].key)) {
        return slot;
      }
    }
  }
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

// How incoming messages ended whose operations still go on, so that a sender that missed the STOP
// gets another however long ago that was. Each takes a few words instead of an IncomingMessage, and
// goes with its operation. The owner of a large operation keeps as many of these as the operation
// has had messages, and never more, whatever peers send.
//
// Operations are numbered once among all ranks, and per peer in the point-to-point phase.
//
// One thread.

struct EndedMessage {
  wire::Outcome outcome = wire::Outcome::kEverything;
  std::uint32_t delivered = 0;
  base::Instant last_stop;
};

class EndedMessages {
 public:
  void add(const wire::MessageId& id, const EndedMessage& ended) {
    Table& table = operations_.try_emplace(operation_of(id), UINT32_MAX).first->second;
    const MessageKey key{id, id.source};
    if (const std::uint32_t slot = table.find(key); slot != Table::kNoSlot) {
      table[slot] = ended;
      return;
    }
    table[table.insert(key)] = ended;
  }

  // Null if the message has not ended, or its operation is over.
  EndedMessage* find(const wire::MessageId& id) {
    const auto operation = operations_.find(operation_of(id));
    if (operation == operations_.end()) {
      return nullptr;
    }
    const std::uint32_t slot = operation->second.find({id, id.source});
    return slot == Table::kNoSlot ? nullptr : &operation->second[slot];
  }

  // The signature of an ended message that is like this one.
  std::optional<std::uint64_t> signature_of(const wire::MessageId& id) const {
    const auto operation = operations_.find(operation_of(id));
    if (operation == operations_.end()) {
      return std::nullopt;
    }
    const Table& table = operation->second;
    const std::uint32_t slot = table.find_alike({id, id.source});
    return slot == Table::kNoSlot ? std::nullopt : std::optional(table.id_of(slot).signature);
  }

  void forget(std::uint64_t operation) { operations_.erase({kAmongAll, operation}); }
  void forget_before(std::uint64_t operation) { forget_range(kAmongAll, operation); }
  void forget_before(std::uint16_t peer, std::uint64_t operation) {
    forget_range(numbered_by(peer), operation);
  }

  std::size_t memory_bytes() const {
    std::size_t bytes = 0;
    for (const auto& [operation, table] : operations_) {
      bytes += sizeof(operation) + sizeof(table) + table.memory_bytes();
    }
    return bytes;
  }

 private:
  using Table = MessageTable<EndedMessage>;
  using Numbered = std::pair<std::uint32_t, std::uint64_t>;  // numbering space, number
  static constexpr std::uint32_t kAmongAll = 0;

  static std::uint32_t numbered_by(std::uint16_t peer) { return peer + 1U; }
  static Numbered operation_of(const wire::MessageId& id) {
    const bool is_paired = id.phase == wire::Phase::kPointToPoint;
    return {is_paired ? numbered_by(id.source) : kAmongAll, id.operation};
  }
  void forget_range(std::uint32_t whose, std::uint64_t end) {
    operations_.erase(operations_.lower_bound({whose, 0}), operations_.lower_bound({whose, end}));
  }

  std::map<Numbered, Table> operations_;
};

// Which numbered operations are over: all below a floor, and runs of numbers above it. Operations
// end in nearly the order of their numbers, so the runs are few: at most one more than there are
// operations that have begun and not ended, however many have ended beside them.
//
// Plain value; one thread.

class RetiredOperations {
 public:
  // True once any were named; an owner that does not number its operations names none.
  bool is_used() const { return is_used_; }
  bool contains(std::uint64_t operation) const {
    if (operation < floor_) {
      return true;
    }
    const auto behind = first_behind(operation);
    return behind != runs_.begin() && operation < std::prev(behind)->end;
  }

  void add(std::uint64_t operation) { add_run(operation, operation + 1); }
  void add_before(std::uint64_t operation) { add_run(0, operation); }

  // All before this one are over.
  std::uint64_t floor() const { return floor_; }
  std::size_t range_count() const { return runs_.size(); }

 private:
  struct Run {
    std::uint64_t begin;
    std::uint64_t end;
  };

  std::vector<Run>::const_iterator first_behind(std::uint64_t operation) const {
    return std::upper_bound(
        runs_.begin(), runs_.end(), operation,
        [](std::uint64_t number, const Run& run) { return number < run.begin; });
  }

  // Joins with all runs that it overlaps or touches, and with the floor.
  void add_run(std::uint64_t begin, std::uint64_t end) {
    is_used_ = true;
    if (end <= floor_) {
      return;
    }
    auto last = runs_.begin() + (first_behind(end) - runs_.cbegin());
    auto first = last;
    while (first != runs_.begin() && std::prev(first)->end >= begin) {
      --first;
      begin = std::min(begin, first->begin);
      end = std::max(end, first->end);
    }
    first = runs_.erase(first, last);
    if (begin <= floor_) {
      floor_ = end;  // nothing lies before it: runs below the floor are no longer there
    } else {
      runs_.insert(first, {begin, end});
    }
  }

  bool is_used_ = false;
  std::uint64_t floor_ = 0;
  std::vector<Run> runs_;  // above the floor, apart from each other, ascending
};

}  // namespace spillway::transport
