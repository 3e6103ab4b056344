// SPDX-License-Identifier: Apache-2.0
//
// Records whose fields all say the same number, so that a mixture of two shows.
#pragma once

#include <cstdint>

#include "runtime/operation_record.h"

namespace spillway::runtime {

inline OperationRecord uniform_record(std::uint32_t number) {
  OperationRecord record;
  record.sequence = number;
  record.count = record.bytes = record.packets_expected = number;
  record.packets_missing = record.wire_bytes_received = number;
  record.late_ranks.fill(number);
  record.message.fill(static_cast<char>('a' + number % 26));
  record.message.back() = '\0';
  return record;
}

inline bool is_uniform(const OperationRecord& record) {
  const std::uint64_t number = record.sequence;
  return record.count == number && record.bytes == number && record.packets_expected == number &&
         record.packets_missing == number && record.wire_bytes_received == number &&
         record.late_ranks.front() == number && record.late_ranks.back() == number &&
         record.message.front() == static_cast<char>('a' + number % 26) &&
         record.message[100] == record.message.front();
}

}  // namespace spillway::runtime
