// SPDX-License-Identifier: Apache-2.0
//
// A flight recorder as text: one JSON object a line (flight_recorder.h says what is in it). Safe in
// a signal handler; one thread.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "runtime/operation_record.h"
#include "runtime/signal_text.h"

namespace spillway::runtime {

class FlightDump {
 public:
  struct Speaker {
    const char* communicator = "";
    std::uint32_t rank = 0;
    std::uint32_t world = 1;
  };

  FlightDump(int fd, const Speaker& speaker);

  void recorder(std::uint64_t unrecorded);
  void operation(const OperationRecord& record);
  // For a record that changed faster than it could be read.
  void busy();

 private:
  void begin_line(const char* record);
  void field(const char* name, std::int64_t number);
  void field(const char* name, const char* text);
  void instant(const char* name, base::Instant at);
  void times(const OperationRecord& record);
  void packets(const OperationRecord& record);
  void late_ranks(const OperationRecord& record);
  void failure(const OperationRecord& record);
  void end_line();

  Speaker speaker_;
  base::Instant now_;
  base::Duration unix_offset_;  // what to add to an Instant for Unix time
  SignalText out_;
};

}  // namespace spillway::runtime
