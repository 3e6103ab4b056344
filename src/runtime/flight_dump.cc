// SPDX-License-Identifier: Apache-2.0
#include "runtime/flight_dump.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/unix_time.h"

namespace spillway::runtime {
namespace {

std::int64_t microseconds(base::Duration duration) {
  return duration.count() / 1000;
}

}  // namespace

FlightDump::FlightDump(int fd, const Speaker& speaker)
    : speaker_(speaker),
      now_(base::MonotonicClock().now()),
      unix_offset_(unix_time_offset()),
      out_(fd) {}

void FlightDump::begin_line(const char* record) {
  out_.text("{\"record\":").quoted(record);
  field("communicator", speaker_.communicator);
  field("rank", speaker_.rank);
  field("world", speaker_.world);
}

void FlightDump::end_line() {
  out_.text("}").end_line();
}

void FlightDump::field(const char* name, std::int64_t number) {
  out_.text(",").quoted(name).text(":").number(number);
}

void FlightDump::field(const char* name, const char* text) {
  out_.text(",").quoted(name).text(":").quoted(text);
}

void FlightDump::instant(const char* name, base::Instant at) {
  if (at != base::Instant()) {
    field(name, microseconds(at.since_zero() + unix_offset_));
  }
}

void FlightDump::recorder(std::uint64_t unrecorded) {
  begin_line("recorder");
  field("pid", ::getpid());
  instant("dumped_unix_us", now_);
  field("unrecorded_operations", static_cast<std::int64_t>(unrecorded));
  end_line();
}

void FlightDump::operation(const OperationRecord& record) {
  begin_line("operation");
  field("sequence", record.sequence);
  field("kind", record.kind);
  field("state", operation_state_name(record.state));
  times(record);
  field("type", record.type);
  field("op", record.op);
  field("algorithm", record.algorithm);
  field("count", static_cast<std::int64_t>(record.count));
  field("bytes", static_cast<std::int64_t>(record.bytes));
  field("priority", record.priority);
  packets(record);
  late_ranks(record);
  failure(record);
  end_line();
}

void FlightDump::busy() {
  begin_line("busy");
  end_line();
}

void FlightDump::times(const OperationRecord& record) {
  field(record.finished_already() ? "duration_us" : "pending_us",
        microseconds(record.duration(now_)));
  instant("queued_unix_us", record.queued);
  instant("started_unix_us", record.started);
  instant("finished_unix_us", record.finished);
}

void FlightDump::packets(const OperationRecord& record) {
  field("packets_expected", static_cast<std::int64_t>(record.packets_expected));
  field("packets_whole", static_cast<std::int64_t>(record.packets_whole));
  field("packets_trimmed", static_cast<std::int64_t>(record.packets_trimmed));
  field("packets_missing", static_cast<std::int64_t>(record.packets_missing));
  field("packets_duplicate", static_cast<std::int64_t>(record.packets_duplicate));
  field("packets_retransmitted", static_cast<std::int64_t>(record.packets_retransmitted));
  field("wire_bytes_sent", static_cast<std::int64_t>(record.wire_bytes_sent));
  field("wire_bytes_received", static_cast<std::int64_t>(record.wire_bytes_received));
  field("contributors", record.contributors);
}

void FlightDump::late_ranks(const OperationRecord& record) {
  field("late_count", record.late_count);
  out_.text(",\"late_ranks\":[");
  for (std::size_t i = 0; i < record.named_late_ranks(); ++i) {
    out_.text(i == 0 ? "" : ",").number(record.late_ranks[i]);
  }
  out_.text("]");
}

void FlightDump::failure(const OperationRecord& record) {
  if (record.culprit_rank >= 0) {
    field("culprit_rank", record.culprit_rank);
  }
  if (record.error != base::StatusCode::kOk) {
    out_.text(",\"error\":").quoted(base::status_code_name(record.error));
    field("message", record.message.data());
  }
}

}  // namespace spillway::runtime
