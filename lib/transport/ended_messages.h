// SPDX-License-Identifier: Apache-2.0
//
// How incoming messages ended whose operations still go on, so that a sender that missed the STOP
// gets another however long ago that was. Each takes a few words instead of an IncomingMessage, and
// goes with its operation. The owner of a large operation keeps as many of these as the operation
// has had messages, and never more, whatever peers send.
//
// Operations are numbered once among all ranks, and per peer in the point-to-point phase.
//
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/units.h"
#include "transport/message_table.h"
#include "wire/control_packet.h"

namespace spillway::transport {

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

  void forget(std::uint64_t operation) { operations_.erase({kAmongAll, operation}); }
  void forget_before(std::uint64_t operation) { forget_run(kAmongAll, operation); }
  void forget_before(std::uint16_t peer, std::uint64_t operation) {
    forget_run(numbered_by(peer), operation);
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
  void forget_run(std::uint32_t whose, std::uint64_t end) {
    operations_.erase(operations_.lower_bound({whose, 0}), operations_.lower_bound({whose, end}));
  }

  std::map<Numbered, Table> operations_;
};

}  // namespace spillway::transport
