// SPDX-License-Identifier: Apache-2.0
//
// The last operations of a communicator, kept for the case that one hangs or fails: which
// operation, in which state, for how long, waiting for which ranks.
//
// A ring of records. A record whose operation has not ended is never overwritten, however old: it
// is the one to look for. If all records are unfinished, a new operation is not recorded, only
// counted.
//
// A dump has one JSON object per line: first the recorder ("record":"recorder"), then its
// operations, nearly in order. Each names communicator, rank and world. Times are Unix
// microseconds. Unfinished operations have "pending_us".
//
// Every live recorder is in the process's registry, for the signal handler (dump_recorders). Its
// destructor waits for a running dump, so a recorder never dies while it is read.
//
// begin, update, end and dump_to_file_on_error: the communicator's thread. snapshot: any thread.
// dump and dump_recorders: any thread, and signal handlers.
//
// Limits: kRecords records, about 800 bytes each; names are cut at kNameBytes. A signal dumps the
// first kMaxRecorders recorders; the log warns about any further one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "observe/log.h"
#include "observe/operation_record.h"

namespace spillway::observe {

// A record that one thread writes while any other thread, or a signal handler, reads it.
//
// There are two copies and a version, whose last bit names the copy to read. The writer fills the
// other copy, then advances the version. A read is retried only if the writer advanced twice
// meanwhile. A signal handler that interrupts the writer always succeeds. Words are stored with
// release and loaded with acquire: a reader that sees a word of a later write also sees, after it,
// the version before that write. (Fences would do, but ThreadSanitizer does not know them.)
//
// One writer. Nothing here waits, allocates or fails.

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

class FlightRecorder;

inline constexpr std::size_t kMaxRecorders = 64;

class RecorderRegistration {
 public:
  explicit RecorderRegistration(const FlightRecorder& recorder);
  ~RecorderRegistration();
  RecorderRegistration(const RecorderRegistration&) = delete;
  RecorderRegistration& operator=(const RecorderRegistration&) = delete;

  bool registered() const { return place_ < kMaxRecorders; }

 private:
  std::size_t place_ = kMaxRecorders;
};

void dump_recorders(int fd) noexcept;

class FlightRecorder {
 public:
  static constexpr std::uint32_t kRecords = 1024;
  static constexpr std::size_t kNameBytes = 64;

  // Where a record is kept. Every call accepts kUnrecorded and then does nothing.
  using Ticket = std::size_t;
  static constexpr Ticket kUnrecorded = SIZE_MAX;

  explicit FlightRecorder(const Identity& identity, std::uint32_t records = kRecords);

  Ticket begin(const OperationRecord& record);
  void update(Ticket ticket, const OperationRecord& record);
  // The record's state must be kDone or kFailed. The ticket is invalid afterwards.
  void end(Ticket ticket, const OperationRecord& record);

  std::vector<OperationRecord> snapshot() const;
  void dump(int fd) const noexcept;

  // Appends a dump to the file at the first failed operation; later failures seldom tell more.
  // Returns false if `file` is empty or a dump was made before.
  base::Result<bool> dump_to_file_on_error(const std::string& file);

 private:
  template <typename Take>
  void for_each_record(Take take) const;

  std::array<char, kNameBytes> name_;
  std::uint32_t rank_;
  std::uint32_t world_;
  std::size_t capacity_;
  std::unique_ptr<RecordSlot[]> slots_;
  std::vector<bool> unfinished_;      // used only by the communicator's thread
  std::atomic<std::size_t> next_{0};  // the slot to try first, and the oldest
  std::atomic<std::uint64_t> unrecorded_{0};
  bool dumped_on_error_ = false;
  RecorderRegistration registration_;  // last: other threads see a complete recorder
};

// `kill -USR2 <pid>` shows what a job waits for: it dumps every flight recorder of the process.
//
//   SPILLWAY_FLIGHT_FILE  a path with %h and %p (log.h), to which dumps are appended;
//                         standard error if unset or if it cannot be opened
//
// A previous handler is called after the dump, with its mask. A handler that the application
// installs later replaces ours, which is installed only once. The signal's default action, such as
// ending the process, no longer happens.
//
// The handler allocates nothing and takes no lock. install_signal_dump: any thread.

struct DumpConfig {
  int signal = 0;      // 0: none
  std::string file{};  // expanded; empty: standard error
};

DumpConfig dump_config(const base::Environment& environment);

// Only the first call with a signal in a process installs; later ones change nothing.
base::Status install_signal_dump(const DumpConfig& config);

}  // namespace spillway::observe
