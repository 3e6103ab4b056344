// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/guest.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/random.h"
#include "base/version.h"
#include "comm/rendezvous/message.h"
#include "comm/rendezvous/notice.h"
#include "comm/rendezvous/socket.h"
#include "observe/log.h"

namespace spillway::runtime {
namespace {

using Outcome = base::Result<Meeting>;

class Guest {
 public:
  Guest(const RendezvousPoint& point, const Attendance& attendance, const Credential& credential,
        const Blob& own, std::uint64_t instance)
      : point_(point),
        attendance_(attendance),
        credential_(credential),
        own_(own),
        instance_(instance),
        jitter_(instance),
        deadline_(clock_.now() + attendance.patience),
        notice_(clock_.now()) {}

  Outcome run(const std::string& host);

 private:
  // The state of the guest's current connection; there is one at a time.
  struct Conversation {
    const Door& door;
    net::UniqueFd stream;
    GuestHandshake handshake;
    Channel channel{};
    base::Instant answer_by{};  // deadline until the host's welcome
    bool welcome = false;
    Blob gathered{};  // gather parts so far
  };
  enum class Next : std::uint8_t { kListen, kLeave };

  // The outcome, or nullopt if another attempt may help; last_ then says what failed.
  std::optional<Outcome> try_all_doors();
  std::optional<Outcome> visit(const Door& door);
  void converse(Conversation& with);

  // Says whether to continue. On kLeave, outcome_ is set, or last_ says what failed.
  Next hear(Conversation& with, Frame frame);
  Next shake_hands(Conversation& with, const Frame& frame);
  Next hear_refusal(Conversation& with, const Frame& frame);
  Next hear_gather(Conversation& with, const Frame& frame);
  Next leave(std::string why);
  Next end(Outcome outcome);

  bool greet(Conversation& with);
  bool send(const net::UniqueFd& stream, const Blob& bytes);
  void say_that_it_waits(const std::string& host);
  void pause();
  base::Status nobody_there(const std::string& host) const;

  base::MonotonicClock clock_;
  const RendezvousPoint& point_;
  const Attendance& attendance_;
  const Credential& credential_;
  const Blob& own_;
  std::uint64_t instance_;
  base::RandomSequence jitter_;
  base::Instant deadline_;
  base::Duration pause_ = kFirstPause;
  std::optional<Outcome> outcome_{};
  std::string last_ = "it was not tried";
  WaitNotice notice_;
};

Outcome Guest::run(const std::string& host) {
  while (clock_.now() < deadline_) {
    if (std::optional<Outcome> outcome = try_all_doors()) {
      return std::move(*outcome);
    }
    say_that_it_waits(host);
    pause();
  }
  return nobody_there(host);
}

std::optional<Outcome> Guest::try_all_doors() {
  const base::Result<std::vector<Door>> doors = doors_of(point_);
  if (!doors.ok()) {
    last_ = doors.status().message();
    return std::nullopt;
  }
  for (const Door& door : *doors) {
    if (std::optional<Outcome> outcome = visit(door)) {
      return outcome;
    }
  }
  return std::nullopt;
}

std::optional<Outcome> Guest::visit(const Door& door) {
  const base::Duration left = deadline_ - clock_.now();
  base::Result<net::UniqueFd> stream =
      connect_to(door, std::clamp(left, base::Duration(), kConnectPatience));
  const base::Result<Random> random = draw_random();
  if (!stream.ok() || !random.ok()) {
    last_ = stream.ok() ? random.status().message() : stream.status().message();
    return std::nullopt;
  }
  Conversation with{.door = door,
                    .stream = std::move(stream).value(),
                    .handshake = GuestHandshake(credential_, *random)};
  if (!send(with.stream, to_bytes(with.handshake.opening()))) {
    last_ = fmt::format("{} hung up", door.text);
    return std::nullopt;
  }
  converse(with);
  return std::move(outcome_);
}

bool Guest::greet(Conversation& with) {
  const base::Result<Blob> bytes = with.channel.pack(encode(Hello{.nonce = attendance_.nonce,
                                                                  .random = attendance_.random,
                                                                  .instance = instance_,
                                                                  .world = attendance_.world,
                                                                  .rank = attendance_.rank,
                                                                  .patience = attendance_.patience,
                                                                  .left = deadline_ - clock_.now(),
                                                                  .version = base::kVersion,
                                                                  .blob = own_}));
  return bytes.ok() && send(with.stream, *bytes);
}

bool Guest::send(const net::UniqueFd& stream, const Blob& bytes) {
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

void Guest::converse(Conversation& with) {
  FrameReader reader(kMaxAnswerBytes);
  with.answer_by = std::min(deadline_, clock_.now() + kWelcomePatience);
  StreamState state = StreamState::kOpen;
  last_ = fmt::format("{} did not answer", with.door.text);
  while (state == StreamState::kOpen) {
    const base::Instant until = with.welcome ? deadline_ + kGrace : with.answer_by;
    if (clock_.now() >= until || !wait_for(with.stream, POLLIN, until - clock_.now())) {
      return;
    }
    Blob bytes;
    state = receive_some(with.stream, bytes);
    reader.append(bytes);
    base::Result<std::optional<Frame>> frame = reader.next();
    for (; frame.ok() && frame->has_value(); frame = reader.next()) {
      if (hear(with, std::move(**frame)) == Next::kLeave) {
        return;
      }
    }
    if (!frame.ok()) {
      leave(
          fmt::format("{} answered something else: {}", with.door.text, frame.status().message()));
      return;
    }
  }
}

Guest::Next Guest::leave(std::string why) {
  last_ = std::move(why);
  return Next::kLeave;
}

Guest::Next Guest::end(Outcome outcome) {
  outcome_ = std::move(outcome);
  return Next::kLeave;
}

Guest::Next Guest::hear(Conversation& with, Frame frame) {
  if (!with.handshake.is_done()) {
    return shake_hands(with, frame);
  }
  const base::Result<Frame> opened = with.channel.unpack(std::move(frame));
  if (!opened.ok()) {
    return leave(fmt::format("{}: {}", with.door.text, opened.status().message()));
  }
  switch (opened->type) {
    case FrameType::kWelcome:
      with.welcome = true;
      last_ = fmt::format("{} went away while this rank waited for the others", with.door.text);
      return Next::kListen;
    case FrameType::kRefusal:
      return hear_refusal(with, *opened);
    case FrameType::kFailure: {
      const base::Result<std::string> reason = parse_failure(opened->body);
      return end(base::Status(base::StatusCode::kUnavailable,
                              reason.ok() ? *reason : reason.status().message()));
    }
    case FrameType::kGather:
    case FrameType::kGatherPart:
      return hear_gather(with, *opened);
    default:
      return Next::kListen;
  }
}

Guest::Next Guest::shake_hands(Conversation& with, const Frame& frame) {
  const base::Result<std::optional<Frame>> answer = with.handshake.take(frame);
  if (!answer.ok()) {
    return leave(
        frame.type == FrameType::kRefusal
            ? fmt::format("{} refused this rank: {}", with.door.text, answer.status().message())
            : fmt::format("{}: {}", with.door.text, answer.status().message()));
  }
  with.channel = with.handshake.channel();
  with.answer_by = std::min(deadline_, clock_.now() + kWelcomePatience);
  const bool said = (!answer->has_value() || send(with.stream, to_bytes(**answer))) && greet(with);
  return said ? Next::kListen : leave(fmt::format("{} hung up", with.door.text));
}

Guest::Next Guest::hear_refusal(Conversation& with, const Frame& frame) {
  const base::Result<Refusal> refusal = parse_refusal(frame.body);
  last_ = refusal.ok() ? fmt::format("{} refused this rank: {}", with.door.text, refusal->reason)
                       : refusal.status().message();
  return refusal.ok() && refusal->final ? end(base::Status(base::StatusCode::kForeign, last_))
                                        : Next::kListen;
}

Guest::Next Guest::hear_gather(Conversation& with, const Frame& frame) {
  with.gathered.insert(with.gathered.end(), frame.body.begin(), frame.body.end());
  const bool fits = with.gathered.size() <= most_gather_bytes(attendance_.world);
  if (fits && frame.type == FrameType::kGatherPart) {
    return Next::kListen;
  }
  const base::Result<Gather> gather =
      parse_gather(fits ? with.gathered : Blob(), attendance_.world);
  if (!gather.ok()) {
    return leave(fmt::format("{}: {}", with.door.text, gather.status().message()));
  }
  if (gather->randoms[attendance_.rank] != attendance_.random) {
    return leave(fmt::format("{} told of a meeting that this rank was not at: an old one, repeated",
                             with.door.text));
  }
  return end(meeting_of(credential_, *gather));
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

// The jitter keeps ranks that all missed the host from returning at the same moment.
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

base::Result<Meeting> attend_rendezvous(const RendezvousPoint& point, const Attendance& attendance,
                                        const Credential& credential, const Blob& own,
                                        const std::string& host) {
  const base::Result<Nonce> random = random_nonce();
  if (!random.ok()) {
    return random.status();
  }
  // Never 0, which is the host's own.
  const std::uint64_t instance = base::load_le<std::uint64_t>(random->data()) | 1;
  return Guest(point, attendance, credential, own, instance).run(host);
}

}  // namespace spillway::runtime
