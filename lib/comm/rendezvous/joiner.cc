// SPDX-License-Identifier: Apache-2.0
//
// A joining rank's side of a rendezvous: it finds the host, shakes hands, says hello and receives
// the blobs of all ranks. It tries every address in turn, again and again, because the host may
// start later, another job or a stranger may answer, or a connection may break.
//
// With a key, a peer that has not proved the key learns nothing but the opening, and nothing it
// says ends the attempts. The joiner retries, and reports at the end what it was told. A gather in
// which this rank's random is not in its place is a replay, and is rejected.
//
// Limits: kConnectPatience per connection; kWelcomePatience for the host's first frame and, after
// the handshake, for its welcome. After the welcome the host decides when patience has ended, and
// has kGrace to say so. Pauses between rounds grow from kFirstPause to kLongestPause. Blocks the
// calling thread and closes all sockets before it returns.
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
#include "comm/rendezvous/register.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/socket.h"
#include "observe/log.h"

namespace spillway::comm {
namespace {

constexpr base::Duration kConnectPatience = base::seconds(2);
constexpr base::Duration kWelcomePatience = base::seconds(5);
constexpr base::Duration kGrace = base::seconds(2);
constexpr base::Duration kFirstPause = base::milliseconds(10);
constexpr base::Duration kLongestPause = base::milliseconds(250);

using Outcome = base::Result<RendezvousResult>;

class Joiner {
 public:
  Joiner(const launch::RendezvousPoint& point, const Participant& participant,
         const Credential& credential, const Blob& own, std::uint64_t instance)
      : point_(point),
        participant_(participant),
        credential_(credential),
        own_(own),
        instance_(instance),
        jitter_(instance),
        deadline_(clock_.now() + participant.patience),
        notice_(clock_.now()) {}

  Outcome run(const std::string& host);

 private:
  // The state of the joiner's current connection; there is one at a time.
  struct Conversation {
    const StreamAddress& where;
    net::UniqueFd stream;
    JoinerHandshake handshake;
    Channel channel{};
    base::Instant answer_by{};  // deadline until the host's welcome
    bool welcome = false;
    Blob gathered{};  // gather parts so far
  };
  enum class Next : std::uint8_t { kListen, kLeave };

  // The outcome, or nullopt if another attempt may help; last_ then says what failed.
  std::optional<Outcome> try_all_addresses();
  std::optional<Outcome> visit(const StreamAddress& where);
  void run_conversation(Conversation& with);

  // Says whether to continue. On kLeave, outcome_ is set, or last_ says what failed.
  Next handle(Conversation& with, Frame frame);
  Next shake_hands(Conversation& with, const Frame& frame);
  Next handle_refusal(Conversation& with, const Frame& frame);
  Next handle_gather(Conversation& with, const Frame& frame);
  Next leave(std::string why);
  Next end(Outcome outcome);

  bool send_hello(Conversation& with);
  bool send(const net::UniqueFd& stream, const Blob& bytes);
  void log_waiting(const std::string& host);
  void pause();
  base::Status not_met(const std::string& host) const;

  base::MonotonicClock clock_;
  const launch::RendezvousPoint& point_;
  const Participant& participant_;
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

Outcome Joiner::run(const std::string& host) {
  while (clock_.now() < deadline_) {
    if (std::optional<Outcome> outcome = try_all_addresses()) {
      return std::move(*outcome);
    }
    log_waiting(host);
    pause();
  }
  return not_met(host);
}

std::optional<Outcome> Joiner::try_all_addresses() {
  const base::Result<std::vector<StreamAddress>> addresses = stream_addresses_of(point_);
  if (!addresses.ok()) {
    last_ = addresses.status().message();
    return std::nullopt;
  }
  for (const StreamAddress& where : *addresses) {
    if (std::optional<Outcome> outcome = visit(where)) {
      return outcome;
    }
  }
  return std::nullopt;
}

std::optional<Outcome> Joiner::visit(const StreamAddress& where) {
  const base::Duration left = deadline_ - clock_.now();
  base::Result<net::UniqueFd> stream =
      connect_to(where, std::clamp(left, base::Duration(), kConnectPatience));
  const base::Result<Random> random = draw_random();
  if (!stream.ok() || !random.ok()) {
    last_ = stream.ok() ? random.status().message() : stream.status().message();
    return std::nullopt;
  }
  Conversation with{.where = where,
                    .stream = std::move(stream).value(),
                    .handshake = JoinerHandshake(credential_, *random)};
  if (!send(with.stream, to_bytes(with.handshake.opening()))) {
    last_ = fmt::format("{} hung up", where.text);
    return std::nullopt;
  }
  run_conversation(with);
  return std::move(outcome_);
}

bool Joiner::send_hello(Conversation& with) {
  const base::Result<Blob> bytes = with.channel.pack(encode(Hello{.nonce = participant_.nonce,
                                                                  .random = participant_.random,
                                                                  .instance = instance_,
                                                                  .world = participant_.world,
                                                                  .rank = participant_.rank,
                                                                  .patience = participant_.patience,
                                                                  .left = deadline_ - clock_.now(),
                                                                  .version = base::kVersion,
                                                                  .blob = own_}));
  return bytes.ok() && send(with.stream, *bytes);
}

bool Joiner::send(const net::UniqueFd& stream, const Blob& bytes) {
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

void Joiner::run_conversation(Conversation& with) {
  FrameReader reader(kMaxAnswerBytes);
  with.answer_by = std::min(deadline_, clock_.now() + kWelcomePatience);
  StreamState state = StreamState::kOpen;
  last_ = fmt::format("{} did not answer", with.where.text);
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
      if (handle(with, std::move(**frame)) == Next::kLeave) {
        return;
      }
    }
    if (!frame.ok()) {
      leave(
          fmt::format("{} answered something else: {}", with.where.text, frame.status().message()));
      return;
    }
  }
}

Joiner::Next Joiner::leave(std::string why) {
  last_ = std::move(why);
  return Next::kLeave;
}

Joiner::Next Joiner::end(Outcome outcome) {
  outcome_ = std::move(outcome);
  return Next::kLeave;
}

Joiner::Next Joiner::handle(Conversation& with, Frame frame) {
  if (!with.handshake.is_done()) {
    return shake_hands(with, frame);
  }
  const base::Result<Frame> opened = with.channel.unpack(std::move(frame));
  if (!opened.ok()) {
    return leave(fmt::format("{}: {}", with.where.text, opened.status().message()));
  }
  switch (opened->type) {
    case FrameType::kWelcome:
      with.welcome = true;
      last_ = fmt::format("{} went away while this rank waited for the others", with.where.text);
      return Next::kListen;
    case FrameType::kRefusal:
      return handle_refusal(with, *opened);
    case FrameType::kFailure: {
      const base::Result<std::string> reason = parse_failure(opened->body);
      return end(base::Status(base::StatusCode::kUnavailable,
                              reason.ok() ? *reason : reason.status().message()));
    }
    case FrameType::kGather:
    case FrameType::kGatherPart:
      return handle_gather(with, *opened);
    default:
      return Next::kListen;
  }
}

Joiner::Next Joiner::shake_hands(Conversation& with, const Frame& frame) {
  const base::Result<std::optional<Frame>> answer = with.handshake.take(frame);
  if (!answer.ok()) {
    return leave(
        frame.type == FrameType::kRefusal
            ? fmt::format("{} refused this rank: {}", with.where.text, answer.status().message())
            : fmt::format("{}: {}", with.where.text, answer.status().message()));
  }
  with.channel = with.handshake.channel();
  with.answer_by = std::min(deadline_, clock_.now() + kWelcomePatience);
  const bool said =
      (!answer->has_value() || send(with.stream, to_bytes(**answer))) && send_hello(with);
  return said ? Next::kListen : leave(fmt::format("{} hung up", with.where.text));
}

Joiner::Next Joiner::handle_refusal(Conversation& with, const Frame& frame) {
  const base::Result<Refusal> refusal = parse_refusal(frame.body);
  last_ = refusal.ok() ? fmt::format("{} refused this rank: {}", with.where.text, refusal->reason)
                       : refusal.status().message();
  return refusal.ok() && refusal->final ? end(base::Status(base::StatusCode::kForeign, last_))
                                        : Next::kListen;
}

Joiner::Next Joiner::handle_gather(Conversation& with, const Frame& frame) {
  with.gathered.insert(with.gathered.end(), frame.body.begin(), frame.body.end());
  const bool fits = with.gathered.size() <= most_gather_bytes(participant_.world);
  if (fits && frame.type == FrameType::kGatherPart) {
    return Next::kListen;
  }
  const base::Result<Gather> gather =
      parse_gather(fits ? with.gathered : Blob(), participant_.world);
  if (!gather.ok()) {
    return leave(fmt::format("{}: {}", with.where.text, gather.status().message()));
  }
  if (gather->randoms[participant_.rank] != participant_.random) {
    return leave(fmt::format("{} told of a meeting that this rank was not at: an old one, repeated",
                             with.where.text));
  }
  return end(result_of(credential_, *gather));
}

void Joiner::log_waiting(const std::string& host) {
  const base::Instant now = clock_.now();
  if (notice_.is_due(now)) {
    observe::log_warn("rank {} of {} is still trying to meet {} at {}, after {} s of {}: {}",
                      participant_.rank, participant_.world, host, point_.to_string(),
                      notice_.waited(now).count() / 1'000'000'000,
                      name_duration(participant_.patience), last_);
  }
}

// The jitter keeps ranks that all missed the host from returning at the same moment.
void Joiner::pause() {
  const double share = 0.5 + 0.5 * jitter_.next_unit();
  const auto wait = static_cast<std::int64_t>(static_cast<double>(pause_.count()) * share);
  const std::int64_t left = (deadline_ - clock_.now()).count();
  std::this_thread::sleep_for(std::chrono::nanoseconds(std::clamp<std::int64_t>(left, 0, wait)));
  pause_ = std::min(pause_ * 2, kLongestPause);
}

base::Status Joiner::not_met(const std::string& host) const {
  return {base::StatusCode::kUnavailable,
          fmt::format("rank {} of {} did not meet {} at {} within {}: {}; see that {} runs, and "
                      "that this host can reach that address",
                      participant_.rank, participant_.world, host, point_.to_string(),
                      name_duration(participant_.patience), last_, host)};
}

}  // namespace

base::Result<RendezvousResult> join_rendezvous(const launch::RendezvousPoint& point,
                                               const Participant& participant,
                                               const Credential& credential, const Blob& own,
                                               const std::string& host) {
  const base::Result<launch::Nonce> random = launch::random_nonce();
  if (!random.ok()) {
    return random.status();
  }
  // Never 0, which is the host's own.
  const std::uint64_t instance = base::load_le<std::uint64_t>(random->data()) | 1;
  return Joiner(point, participant, credential, own, instance).run(host);
}

}  // namespace spillway::comm
