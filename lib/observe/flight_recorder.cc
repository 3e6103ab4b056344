// SPDX-License-Identifier: Apache-2.0
#include "observe/flight_recorder.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/own_file.h"
#include "base/status.h"
#include "base/units.h"
#include "net/system_call.h"
#include "observe/log.h"
#include "observe/operation_record.h"

namespace spillway::observe {

namespace {

// All accesses are sequentially consistent. A dump announces itself before it reads `places`. A
// recorder removes itself before it checks for running dumps. So one of the two sees the other.
std::array<std::atomic<const FlightRecorder*>, kMaxRecorders> places{};
std::atomic<int> dumps_running{0};

// Writes a flight recorder as text, one JSON object per line (format in flight_recorder.h). Safe in
// a signal handler; one thread.
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
  base::Duration unix_offset_;  // added to an Instant, gives Unix time
  SignalText out_;
};

std::int64_t microseconds(base::Duration duration) {
  return duration.count() / 1000;
}

FlightDump::FlightDump(int fd, const Speaker& speaker)
    : speaker_(speaker),
      now_(base::MonotonicClock().now()),
      unix_offset_(base::unix_time_offset()),
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
  if (*record.carrier != '\0') {
    field("carrier", record.carrier);
  }
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
  if (record.coded_bytes_sent > 0) {
    field("coded_bytes_sent", static_cast<std::int64_t>(record.coded_bytes_sent));
    field("coded_bytes_spared", static_cast<std::int64_t>(record.coded_bytes_spared));
  }
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

std::array<char, FlightRecorder::kNameBytes> fixed_name(const std::string& name) {
  std::array<char, FlightRecorder::kNameBytes> fixed{};
  copy_clean(name, fixed);
  return fixed;
}

}  // namespace

RecorderRegistration::RecorderRegistration(const FlightRecorder& recorder) {
  for (std::size_t place = 0; place < kMaxRecorders; ++place) {
    const FlightRecorder* nobody = nullptr;
    if (places[place].compare_exchange_strong(nobody, &recorder)) {
      place_ = place;
      return;
    }
  }
  log_warn("more than {} communicators: a signal does not dump the operations of the newest",
           kMaxRecorders);
}

RecorderRegistration::~RecorderRegistration() {
  if (!registered()) {
    return;
  }
  places[place_].store(nullptr);
  while (dumps_running.load() != 0) {
    std::this_thread::yield();
  }
}

void dump_recorders(int fd) noexcept {
  dumps_running.fetch_add(1);
  for (const auto& place : places) {
    if (const FlightRecorder* recorder = place.load()) {
      recorder->dump(fd);
    }
  }
  dumps_running.fetch_sub(1);
}

FlightRecorder::FlightRecorder(const Identity& identity, std::uint32_t records)
    : name_(fixed_name(identity.communicator)),
      rank_(identity.rank),
      world_(identity.world),
      capacity_(records),
      slots_(new RecordSlot[records]),
      unfinished_(records, false),
      registration_(*this) {
  SPILLWAY_CHECK(records >= 1);
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
  const net::UniqueFd fd(base::open_own_file(file.c_str(), base::Opening::kAppend));
  if (!fd.valid()) {
    return base::not_opened(file, errno, "set SPILLWAY_FLIGHT_FILE to a path that can be written");
  }
  dump(fd.get());
  return true;
}

namespace {

// The handler's data. Written before the handler is installed, never after.
struct HandlerState {
  struct sigaction before {};
  std::string file;
};
HandlerState& handler_state() {
  static auto* state = new HandlerState;  // never freed: signals may come during exit
  return *state;
}
HandlerState* installed = nullptr;

void dump_to(const std::string& file) {
  const int fd =
      file.empty() ? STDERR_FILENO : base::open_own_file(file.c_str(), base::Opening::kAppend);
  dump_recorders(fd < 0 ? STDERR_FILENO : fd);
  if (fd > STDERR_FILENO) {
    ::close(fd);
  }
}

void call(const struct sigaction& handler, int signal, siginfo_t* info, void* context) {
  if ((handler.sa_flags & SA_SIGINFO) != 0) {
    handler.sa_sigaction(signal, info, context);
  } else if (handler.sa_handler != SIG_DFL && handler.sa_handler != SIG_IGN) {
    handler.sa_handler(signal);
  }
}

void on_signal(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  dump_to(installed->file);
  errno = saved_errno;
  call(installed->before, signal, info, context);
}

bool has_handler(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

// Lets system calls fail with EINTR only if the previous handler did: its owner may rely on it.
struct sigaction action_before(const struct sigaction& before) {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags =
      SA_SIGINFO | SA_ONSTACK | (has_handler(before) ? before.sa_flags & SA_RESTART : SA_RESTART);
  action.sa_mask = before.sa_mask;
  return action;
}

base::Status install(const DumpConfig& config) {
  HandlerState& state = handler_state();
  state.file = config.file;
  installed = &state;
  if (::sigaction(config.signal, nullptr, &state.before) == 0) {
    const struct sigaction action = action_before(state.before);
    if (::sigaction(config.signal, &action, nullptr) == 0) {
      return {};
    }
  }
  return net::system_error(fmt::format("handle signal {}", config.signal), errno);
}

}  // namespace

DumpConfig dump_config(const base::Environment& environment) {
  return {.signal = SIGUSR2,
          .file = expand_path(environment.text("SPILLWAY_FLIGHT_FILE"), nullptr)};
}

base::Status install_signal_dump(const DumpConfig& config) {
  static std::once_flag once;
  base::Status status;
  if (config.signal != 0) {
    std::call_once(once, [&] { status = install(config); });
  }
  return status;
}

}  // namespace spillway::observe
