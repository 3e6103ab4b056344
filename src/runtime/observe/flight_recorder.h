// SPDX-License-Identifier: Apache-2.0
//
// The last operations of a communicator, kept for the moment when one hangs or fails: which
// operation, in which state, for how long, waiting for whom.
//
// A ring of records. One whose operation has not ended is never overwritten, however old: it is the
// one that is looked for. Where all of them are such, a new operation goes unrecorded and is
// counted.
//
// A dump is one JSON object a line: first the recorder ("record":"recorder"), then its operations,
// nearly in their order. All of them name communicator, rank and world; times are Unix
// microseconds; an operation that has not ended has "pending_us".
//
// Every recorder is in the process's registry while it lives, for whoever must see them all: a
// signal handler (dump_recorders). Leaving the registry waits until a dump that runs has ended, so
// a recorder never goes while it is read.
//
// begin, update, end and dump_to_file_on_error: the communicator's thread. snapshot: any thread.
// dump and dump_recorders: any thread, and signal handlers.
//
// Limits: SPILLWAY_FLIGHT_RECORDER records, about 800 bytes each; the communicator's name is cut at
// kNameBytes; of more than kMaxRecorders the rest is not found by a signal, and is told so.
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
#include "runtime/observe/identity.h"
#include "runtime/observe/operation_record.h"
#include "runtime/observe/record_slot.h"

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

  // Where a record is kept; kUnrecorded is taken everywhere and does nothing.
  using Ticket = std::size_t;
  static constexpr Ticket kUnrecorded = SIZE_MAX;

  // From 1 to kMaxRecords.
  FlightRecorder(const Identity& identity, std::uint32_t records);

  Ticket begin(const OperationRecord& record);
  void update(Ticket ticket, const OperationRecord& record);
  // The record's state is kDone or kFailed. The ticket is spent.
  void end(Ticket ticket, const OperationRecord& record);

  std::vector<OperationRecord> snapshot() const;
  void dump(int fd) const noexcept;

  // For the first operation that fails: those that follow it seldom tell more. Adds to the file;
  // does nothing where `file` is empty. False where there was nothing to do.
  base::Result<bool> dump_to_file_on_error(const std::string& file);

 private:
  template <typename Take>
  void for_each_record(Take take) const;

  std::array<char, kNameBytes> name_;
  std::uint32_t rank_;
  std::uint32_t world_;
  std::size_t capacity_;
  std::unique_ptr<RecordSlot[]> slots_;
  std::vector<bool> unfinished_;      // the communicator's thread
  std::atomic<std::size_t> next_{0};  // the slot to try first, and the oldest
  std::atomic<std::uint64_t> unrecorded_{0};
  bool dumped_on_error_ = false;
  RecorderRegistration registration_;  // last: others see it from here on, and until here
};

}  // namespace spillway::runtime
