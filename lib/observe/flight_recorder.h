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
// Limits: SPILLWAY_FLIGHT_RECORDER records, about 800 bytes each; names are cut at kNameBytes. A
// signal dumps the first kMaxRecorders recorders; the log warns about any further one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/variables.h"
#include "observe/identity.h"
#include "observe/operation_record.h"
#include "observe/record_slot.h"

namespace spillway::runtime {

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
  static constexpr auto kMaxRecords =
      static_cast<std::uint32_t>(base::variable("SPILLWAY_FLIGHT_RECORDER").most);
  static constexpr std::size_t kNameBytes = 64;

  // Where a record is kept. Every call accepts kUnrecorded and then does nothing.
  using Ticket = std::size_t;
  static constexpr Ticket kUnrecorded = SIZE_MAX;

  // `records`: 1 to kMaxRecords.
  FlightRecorder(const Identity& identity, std::uint32_t records);

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

}  // namespace spillway::runtime
