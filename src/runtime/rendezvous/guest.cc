// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/guest.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/random.h"
#include "base/version.h"
#include "runtime/observe/log.h"
#include "runtime/rendezvous/message.h"
#include "runtime/rendezvous/notice.h"
#include "runtime/rendezvous/socket.h"

namespace spillway::runtime {
namespace {

using Gathered = base::Result<std::vector<Blob>>;

class Guest {
 public:
  Guest(const RendezvousPoint& point, const Attendance& attendance, const Blob& own,
        std::uint64_t instance)
      : point_(point),
        attendance_(attendance),
        own_(own),
        instance_(instance),
        jitter_(instance),
        deadline_(clock_.now() + attendance.patience),
        notice_(clock_.now()) {}

  Gathered run(const std::string& host);

 private:
  // The outcome, or nothing when it is worth trying again; then last_ says what was wrong.
  std::optional<Gathered> try_all_doors();
  std::optional<Gathered> visit(const Door& door);
  std::optional<Gathered> converse(const Door& door, const net::UniqueFd& stream);
  std::optional<Gathered> hear(const Door& door, const Frame& frame);
  bool greet(const net::UniqueFd& stream);
  void say_that_it_waits(const std::string& host);
  void pause();
  base::Status nobody_there(const std::string& host) const;

  base::MonotonicClock clock_;
  const RendezvousPoint& point_;
  const Attendance& attendance_;
  const Blob& own_;
  std::uint64_t instance_;
  base::RandomSequence jitter_;
  base::Instant deadline_;
  base::Duration pause_ = kFirstPause;
  bool welcome_ = false;  // in the conversation that goes on
  std::string last_ = "it was not tried";
  WaitNotice notice_;
};

Gathered Guest::run(const std::string& host) {
  while (clock_.now() < deadline_) {
    if (std::optional<Gathered> outcome = try_all_doors()) {
      return std::move(*outcome);
    }
    say_that_it_waits(host);
    pause();
  }
  return nobody_there(host);
}

std::optional<Gathered> Guest::try_all_doors() {
  const base::Result<std::vector<Door>> doors = doors_of(point_);
  if (!doors.ok()) {
    last_ = doors.status().message();
    return std::nullopt;
  }
  for (const Door& door : *doors) {
    if (std::optional<Gathered> outcome = visit(door)) {
      return outcome;
    }
  }
  return std::nullopt;
}

std::optional<Gathered> Guest::visit(const Door& door) {
  const base::Duration left = deadline_ - clock_.now();
  const auto stream = connect_to(door, std::clamp(left, base::Duration(), kConnectPatience));
  if (!stream.ok()) {
    last_ = stream.status().message();
    return std::nullopt;
  }
  if (!greet(*stream)) {
    last_ = fmt::format("{} hung up", door.text);
    return std::nullopt;
  }
  return converse(door, *stream);
}

bool Guest::greet(const net::UniqueFd& stream) {
  const Blob bytes = encode(Hello{.nonce = attendance_.nonce,
                                  .instance = instance_,
                                  .world = attendance_.world,
                                  .rank = attendance_.rank,
                                  .patience = attendance_.patience,
                                  .left = deadline_ - clock_.now(),
                                  .version = base::kVersion,
                                  .blob = own_});
  const base::Instant end = clock_.now() + kConnectPatience;
  std::size_t sent = 0;
  while (sent < bytes.size() && clock_.now() < end) {
    if (send_some(stream, bytes, sent) == StreamState::kClosed) {
      return false;
    }
    if (sent < bytes.size()) {
      wait_for(stream, POLLOUT, end - clock_.now());
    }
  }
  return sent == bytes.size();
}

std::optional<Gathered> Guest::converse(const Door& door, const net::UniqueFd& stream) {
  FrameReader reader(most_answer_bytes(attendance_.world));
  const base::Instant first_word_by = std::min(deadline_, clock_.now() + kWelcomePatience);
  welcome_ = false;
  StreamState state = StreamState::kOpen;
  last_ = fmt::format("{} did not answer", door.text);
  while (state == StreamState::kOpen) {
    const base::Instant until = welcome_ ? deadline_ + kGrace : first_word_by;
    if (clock_.now() >= until || !wait_for(stream, POLLIN, until - clock_.now())) {
      return std::nullopt;
    }
    Blob bytes;
    state = receive_some(stream, bytes);
    reader.append(bytes);
    base::Result<std::optional<Frame>> frame = reader.next();
    for (; frame.ok() && frame->has_value(); frame = reader.next()) {
      if (std::optional<Gathered> outcome = hear(door, **frame)) {
        return outcome;
      }
    }
    if (!frame.ok()) {
      last_ = fmt::format("{} answered something else: {}", door.text, frame.status().message());
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::optional<Gathered> Guest::hear(const Door& door, const Frame& frame) {
  if (frame.type == FrameType::kWelcome) {
    welcome_ = true;
    last_ = fmt::format("{} went away while this rank waited for the others", door.text);
  } else if (frame.type == FrameType::kRefusal) {
    const base::Result<Refusal> refusal = parse_refusal(frame.body);
    last_ = refusal.ok() ? fmt::format("{} refused this rank: {}", door.text, refusal->reason)
                         : refusal.status().message();
    if (refusal.ok() && refusal->final) {
      return Gathered(base::Status(base::StatusCode::kForeign, last_));
    }
  } else if (frame.type == FrameType::kFailure) {
    const base::Result<std::string> reason = parse_failure(frame.body);
    return Gathered(base::Status(base::StatusCode::kUnavailable,
                                 reason.ok() ? *reason : reason.status().message()));
  } else if (frame.type == FrameType::kGather) {
    return parse_gather(frame.body, attendance_.world);
  }
  return std::nullopt;
}

void Guest::say_that_it_waits(const std::string& host) {
  const base::Instant now = clock_.now();
  if (notice_.is_due(now)) {
    log_warn("rank {} of {} is still trying to meet {} at {}, after {} s of {}: {}",
             attendance_.rank, attendance_.world, host, point_.to_string(),
             notice_.waited(now).count() / 1'000'000'000, name_duration(attendance_.patience),
             last_);
  }
}

// Ranks that all missed the host at once do not come back all at once.
void Guest::pause() {
  const double share = 0.5 + 0.5 * jitter_.next_unit();
  const auto wait = static_cast<std::int64_t>(static_cast<double>(pause_.count()) * share);
  const std::int64_t left = (deadline_ - clock_.now()).count();
  std::this_thread::sleep_for(std::chrono::nanoseconds(std::clamp<std::int64_t>(left, 0, wait)));
  pause_ = std::min(pause_ * 2, kLongestPause);
}

base::Status Guest::nobody_there(const std::string& host) const {
  return {base::StatusCode::kUnavailable,
          fmt::format("rank {} of {} did not meet {} at {} within {}: {}; see that {} runs, and "
                      "that this host can reach that address",
                      attendance_.rank, attendance_.world, host, point_.to_string(),
                      name_duration(attendance_.patience), last_, host)};
}

}  // namespace

Gathered attend_rendezvous(const RendezvousPoint& point, const Attendance& attendance,
                           const Blob& own, const std::string& host) {
  const base::Result<Nonce> random = random_nonce();
  if (!random.ok()) {
    return random.status();
  }
  // 0 is nobody's: the host itself has it.
  const std::uint64_t instance = base::load_le<std::uint64_t>(random->data()) | 1;
  return Guest(point, attendance, own, instance).run(host);
}

}  // namespace spillway::runtime
