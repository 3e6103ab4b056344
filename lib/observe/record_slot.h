// SPDX-License-Identifier: Apache-2.0
//
// A record that one thread writes while any other thread, or a signal handler, reads it.
//
// There are two copies and a version, whose last bit names the copy to read. The writer fills the
// other copy, then advances the version. A read is retried only if the writer advanced twice
// meanwhile. A signal handler that interrupts the writer always succeeds. Words are stored with
// release and loaded with acquire: a reader that sees a word of a later write also sees, after it,
// the version before that write. (Fences would do, but ThreadSanitizer does not know them.)
//
// One writer. Nothing here waits, allocates or fails.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "observe/operation_record.h"

namespace spillway::runtime {

class RecordSlot {
 public:
  enum class Sight { kEmpty, kRead, kBusy };

  void publish(const OperationRecord& record) {
    Words words{};
    std::memcpy(words.data(), &record, sizeof(record));
    const std::uint64_t next = version_.load(std::memory_order_relaxed) + 1;
    Copy& copy = copies_[next & 1];
    for (std::size_t i = 0; i < kWords; ++i) {
      copy[i].store(words[i], std::memory_order_release);
    }
    version_.store(next, std::memory_order_release);
  }

  Sight read(OperationRecord& record) const {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const std::uint64_t version = version_.load(std::memory_order_acquire);
      if (version == 0) {
        return Sight::kEmpty;
      }
      Words words{};
      const Copy& copy = copies_[version & 1];
      for (std::size_t i = 0; i < kWords; ++i) {
        words[i] = copy[i].load(std::memory_order_acquire);
      }
      if (version_.load(std::memory_order_relaxed) == version) {
        std::memcpy(static_cast<void*>(&record), words.data(), sizeof(record));
        return Sight::kRead;
      }
    }
    return Sight::kBusy;
  }

 private:
  static constexpr int kAttempts = 100;
  static constexpr std::size_t kWords = (sizeof(OperationRecord) + 7) / 8;
  using Words = std::array<std::uint64_t, kWords>;
  using Copy = std::array<std::atomic<std::uint64_t>, kWords>;
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  std::atomic<std::uint64_t> version_{0};  // 0: never written
  std::array<Copy, 2> copies_{};
};

}  // namespace spillway::runtime
