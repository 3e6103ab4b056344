// SPDX-License-Identifier: Apache-2.0
#include "runtime/flight_recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "net/system_error.h"
#include "net/unique_fd.h"
#include "runtime/clean_text.h"
#include "runtime/flight_dump.h"
#include "runtime/warned_number.h"

namespace spillway::runtime {
namespace {

std::array<char, FlightRecorder::kNameBytes> fixed_name(const std::string& name) {
  std::array<char, FlightRecorder::kNameBytes> fixed{};
  copy_clean(name, fixed);
  return fixed;
}

}  // namespace

FlightRecorder::FlightRecorder(const Identity& identity, std::uint32_t records)
    : name_(fixed_name(identity.communicator)),
      rank_(identity.rank),
      world_(identity.world),
      capacity_(records),
      slots_(new RecordSlot[records]),
      unfinished_(records, false),
      registration_(*this) {
  SPILLWAY_CHECK(records >= 1 && records <= kMostRecords);
}

FlightRecorder::Ticket FlightRecorder::begin(const OperationRecord& record) {
  const std::size_t first = next_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < capacity_; ++i) {
    const Ticket ticket = (first + i) % capacity_;
    if (!unfinished_[ticket]) {
      unfinished_[ticket] = true;
      slots_[ticket].publish(record);
      next_.store((ticket + 1) % capacity_, std::memory_order_relaxed);
      return ticket;
    }
  }
  unrecorded_.fetch_add(1, std::memory_order_relaxed);
  return kUnrecorded;
}

void FlightRecorder::update(Ticket ticket, const OperationRecord& record) {
  if (ticket != kUnrecorded) {
    SPILLWAY_CHECK(ticket < capacity_ && unfinished_[ticket]);
    slots_[ticket].publish(record);
  }
}

void FlightRecorder::end(Ticket ticket, const OperationRecord& record) {
  SPILLWAY_CHECK(record.finished_already());
  update(ticket, record);
  if (ticket != kUnrecorded) {
    unfinished_[ticket] = false;
  }
}

template <typename Take>
void FlightRecorder::for_each_record(Take take) const {
  const std::size_t oldest = next_.load(std::memory_order_relaxed);
  OperationRecord record;
  for (std::size_t i = 0; i < capacity_; ++i) {
    const RecordSlot::Sight sight = slots_[(oldest + i) % capacity_].read(record);
    if (sight != RecordSlot::Sight::kEmpty) {
      take(sight, record);
    }
  }
}

std::vector<OperationRecord> FlightRecorder::snapshot() const {
  std::vector<OperationRecord> records;
  for_each_record([&records](RecordSlot::Sight sight, const OperationRecord& record) {
    if (sight == RecordSlot::Sight::kRead) {
      records.push_back(record);
    }
  });
  return records;
}

void FlightRecorder::dump(int fd) const noexcept {
  FlightDump dump(fd, {.communicator = name_.data(), .rank = rank_, .world = world_});
  dump.recorder(unrecorded_.load(std::memory_order_relaxed));
  for_each_record([&dump](RecordSlot::Sight sight, const OperationRecord& record) {
    if (sight == RecordSlot::Sight::kRead) {
      dump.operation(record);
    } else {
      dump.busy();
    }
  });
}

base::Result<bool> FlightRecorder::dump_to_file_on_error(const std::string& file) {
  if (file.empty() || dumped_on_error_) {
    return false;
  }
  dumped_on_error_ = true;
  const net::UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return net::system_error(fmt::format("write the flight recorder to {}", file), errno,
                             "set SPILLWAY_FLIGHT_FILE to a path that can be written");
  }
  dump(fd.get());
  return true;
}

std::uint32_t flight_records(const Environment& environment) {
  return read_number(environment, {.name = "SPILLWAY_FLIGHT_RECORDER",
                                   .least = 1,
                                   .most = FlightRecorder::kMostRecords,
                                   .otherwise = FlightRecorder::kDefaultRecords});
}

}  // namespace spillway::runtime
