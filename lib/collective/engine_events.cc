// SPDX-License-Identifier: Apache-2.0
//
// Events that reach the engine while operations run: messages and jobs of runs, and the engine's
// own messages beside them:
//
//   announcements    of messages that no receive has claimed yet (matching.h)
//   calls            from workers to parameter servers (calls.h)
//   notes            of surveys, which decide how large all-reduces are carried out (ways.h)
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "collective/engine.h"

namespace spillway::collective {
namespace {

// Keys without a number: receives that wait for their message, and sends and receives of nothing.
constexpr std::uint64_t kUnnumberedKey = std::uint64_t{1} << 61;

// Smaller operations are over before a link's load matters.
constexpr std::size_t kLeastBytes = std::size_t{1} << 20;
// Among more ranks a share is too small to gain much.
constexpr std::uint16_t kMostRanks = 64;
// Pieces are numbered beside notes and receipts; uneven shards have a few more of them.
constexpr std::size_t kMostPieces = kMaxParts / 2;

constexpr std::uint64_t kWantsEqual = 0;
constexpr double kCapacityUnit = 1'000.0;  // bits per second

}  // namespace

// ------------------------------------------------------------------ runs

void Engine::on_event(const transport::Event& event, transport::Endpoint& endpoint,
                      base::Instant now) {
  if (const auto* dead = std::get_if<transport::PeerDead>(&event)) {
    on_peer_dead(*dead, endpoint, now);
    return;
  }
  if (const auto* stall = std::get_if<transport::MessageStalled>(&event)) {
    on_stalled(*stall, endpoint, now);
    return;
  }
  if (const auto* failed = std::get_if<transport::PeerFailed>(&event)) {
    on_peer_failed(*failed, endpoint, now);
    return;
  }
  if (const auto* unexpected = std::get_if<transport::UnexpectedMessage>(&event)) {
    on_unexpected(*unexpected, endpoint, now);
    return;
  }
  if (const auto* summed = std::get_if<transport::SumReport>(&event)) {
    on_summed(*summed, endpoint, now);
    return;
  }
  if (is_call_event(event)) {
    on_call_event(event, endpoint, now);
    return;
  }
  on_message_event(event, endpoint, now);
}

// A message of an operation has ended.
void Engine::on_message_event(const transport::Event& event, transport::Endpoint& endpoint,
                              base::Instant now) {
  RunContext context = this->context(endpoint, now);
  const auto* received = std::get_if<transport::ReceiveReport>(&event);
  const auto* sent = std::get_if<transport::SendReport>(&event);
  const Key key = received != nullptr ? key_of(received->id, received->id.source, false)
                                      : key_of(sent->id, sent->to, true);
  const auto found = running_.find(key);
  if (found == running_.end()) {
    return;  // of an operation that failed
  }
  const transport::Outcome outcome = received != nullptr ? received->outcome : sent->outcome;
  if (outcome == transport::Outcome::kPeerDead) {
    return;  // the event that names the peer follows
  }
  if (found->second.notes && SurveyNotes::is_one(received != nullptr ? received->id : sent->id)) {
    on_note_event(event, key, endpoint, now);
    return;
  }
  OperationRun& run = *found->second.run;
  found->second.last_message = now;
  after(key,
        received != nullptr ? run.on_received(*received, context) : run.on_sent(*sent, context),
        endpoint, now);
}

void Engine::on_summed(const transport::SumReport& report, transport::Endpoint& endpoint,
                       base::Instant now) {
  const auto found = running_.find(report.id.operation);
  if (found == running_.end()) {
    return;  // of an operation that failed
  }
  RunContext context = this->context(endpoint, now);
  found->second.last_message = now;
  after(report.id.operation, found->second.run->on_summed(report, context), endpoint, now);
}

void Engine::on_computed(const ComputeJob& job, transport::Endpoint& endpoint, base::Instant now) {
  RunContext context = this->context(endpoint, now);
  if (const auto leaving = leaving_.find(job.operation); leaving != leaving_.end()) {
    OperationRun& run = *leaving->second.run;
    static_cast<void>(run.on_computed(job.tag, context));  // it was withdrawn: nothing follows
    if (run.is_idle()) {
      const Active active = std::move(leaving->second);
      leaving_.erase(leaving);
      if (!active.is_complete) {
        active.run->report().finished = now;
        report_failure(active.token, active.run->report());
      }
    }
    return;
  }
  const auto found = running_.find(job.operation);
  SPILLWAY_CHECK(found != running_.end());
  count_job(found->second, job, now);
  after(job.operation, found->second.run->on_computed(job.tag, context), endpoint, now);
}

// ------------------------------------------------------------------ sends and receives

bool Engine::is_numbered_receive(Key key) {
  return is_point_to_point_key(key) && (key >> 62 & 1) == 0 && (key & kUnnumberedKey) == 0;
}

bool Engine::is_numbered_send(Key key) {
  return is_point_to_point_key(key) && (key >> 62 & 1) != 0;
}

void Engine::start_point_to_point(const Waiting& waiting, transport::Endpoint& endpoint,
                                  base::Instant now) {
  const Operation& operation = waiting.operation;
  if (operation.count == 0) {
    start(waiting, next_unnumbered_key(), endpoint, now);
  } else if (operation.kind == Kind::kSend) {
    const std::uint64_t number = sends_to_[operation.root].next++;
    send_in_turn(waiting, point_to_point_key(operation.root, /*sends=*/true, number), endpoint,
                 now);
  } else {
    post(waiting, endpoint, now);
  }
}

Engine::Key Engine::next_unnumbered_key() {
  return point_to_point_key(0, /*sends=*/false, 0) | kUnnumberedKey | unnumbered_++;
}

void Engine::post(const Waiting& waiting, transport::Endpoint& endpoint, base::Instant now) {
  const Key key = next_unnumbered_key();
  const auto has_left = [this](std::uint16_t rank) {
    return std::any_of(closed_.begin(), closed_.end(),
                       [rank](const Closed& closed) { return closed.rank == rank; });
  };
  begin(waiting, key,
        std::make_unique<PostedReceive>(waiting.operation, key, runs_.config(), has_left), endpoint,
        now);
  if (running_.contains(key)) {
    matching_.post(key, waiting.operation.root, waiting.operation.tag);
    start_matched(endpoint, now);
  }
}

void Engine::on_announced(const wire::MessageId& message, transport::Endpoint& endpoint,
                          base::Instant now) {
  if (message.source < config_.group.workers()) {
    matching_.announce(message);
    start_matched(endpoint, now);
  }
}

// If the two ends do not agree on what is sent, that is found out as for any operation.
void Engine::start_matched(transport::Endpoint& endpoint, base::Instant now) {
  while (received_messages_ < config_.limits.pair_messages) {
    const std::optional<ReceiveMatching::Match> match = matching_.next();
    if (!match) {
      return;
    }
    const auto posted = running_.find(match->order);
    if (posted == running_.end()) {
      continue;  // everything has failed
    }
    OperationRun& run = *posted->second.run;
    Waiting waiting{run.operation(), posted->second.token, match->message.operation,
                    run.report().queued};
    waiting.operation.root = match->message.source;
    count_out(match->order, run);
    running_.erase(posted);
    start(waiting, key_of(match->message, match->message.source, /*sends=*/false), endpoint, now);
    on_unexpected({match->message, /*contradicts=*/false}, endpoint, now);
  }
}

// ------------------------------------------------------------------ calls to parameter servers

base::Status Engine::serve(transport::Endpoint& endpoint, base::Instant now) {
  begin_numbering(endpoint);
  RunContext context = this->context(endpoint, now);
  return inbox_->start(context);
}

// Operations that do not go through servers are called, too: so the servers know which numbers to
// expect next, and find out when workers do not agree.
base::Status Engine::call_servers(const Waiting& waiting, RunContext& context) {
  if (!outbox_ || is_point_to_point(waiting.operation.kind)) {
    return {};
  }
  return outbox_->send(waiting.operation, waiting.sequence, context);
}

// Between a worker and a server only calls are point to point.
bool Engine::is_call_event(const transport::Event& event) const {
  if (const auto* received = std::get_if<transport::ReceiveReport>(&event)) {
    return inbox_ && received->id.phase == wire::Phase::kPointToPoint;
  }
  const auto* sent = std::get_if<transport::SendReport>(&event);
  return outbox_ && sent->id.phase == wire::Phase::kPointToPoint &&
         sent->to >= config_.group.workers();
}

void Engine::on_call_event(const transport::Event& event, transport::Endpoint& endpoint,
                           base::Instant now) {
  if (const auto* sent = std::get_if<transport::SendReport>(&event)) {
    outbox_->on_sent(*sent);
    start_waiting(endpoint, now);
    return;
  }
  const auto& received = std::get<transport::ReceiveReport>(event);
  if (failure_ || received.outcome == transport::Outcome::kPeerDead) {
    return;
  }
  RunContext context = this->context(endpoint, now);
  if (const std::optional<CallFault> fault = inbox_->on_received(received, context)) {
    if (fault->mismatch) {
      resolve_or_wait(*fault->mismatch, fault->culprit, endpoint, now);
    } else {
      fail(fault->status, fault->culprit, fault->cause, endpoint, now);
    }
    return;
  }
  while (const std::optional<OpenedCall> opened = inbox_->next()) {
    open(*opened, endpoint, now);
  }
}

// A server checks the operation itself: it does not rely on the check of the worker that calls it.
void Engine::open(const OpenedCall& opened, transport::Endpoint& endpoint, base::Instant now) {
  const Operation& operation = opened.operation;
  base::Status status = runs_.admit(operation);
  if (status.ok() && waiting_.size() == config_.limits.waiting) {
    status = {base::StatusCode::kLimitExceeded, "too many operations wait already"};
  }
  if (!status.ok()) {
    fail({status.code(), fmt::format("operation {} of rank {} ({}): {}", opened.sequence,
                                     opened.caller, describe(operation), status.message())},
         opened.caller, wire::FailureCause::kMismatch, endpoint, now);
    return;
  }
  if (!uses_servers(operation, config_.group)) {
    next_sequence_ = opened.sequence + 1;
    retire_in_endpoint(Key{opened.sequence}, endpoint);
    return;
  }
  enqueue({operation, /*token=*/opened.sequence, opened.sequence, now}, endpoint, now);
}

// ------------------------------------------------------------------ surveys

// Not with entropy and sketch, whose chunks are cut by cost. Not with deadlines: all pieces are
// then under way at once, in room for those of equal shards, and no rank waits for a late rank, or
// for its note.
bool Engine::is_surveyed(const Operation& operation) const {
  if (!ways_ || config_.group.world > kMostRanks || operation.kind != Kind::kAllReduce ||
      operation.bytes() < kLeastBytes ||
      operation.bytes() / runs_.plan().piece_bytes >= kMostPieces ||
      (operation.tolerance && (operation.tolerance->least_contributors > 0.0 ||
                               uses_entropy(operation.tolerance->codec)))) {
    return false;
  }
  return operation.tolerance || operation.algorithm == Algorithm::kAutomatic ||
         operation.algorithm == Algorithm::kDirect;
}

// Ranks that share memory use their links in ways that shares do not account for.
std::uint64_t Engine::own_capacity(const transport::Endpoint& endpoint, base::Instant now) const {
  if (config_.shares == ShareRule::kEqual || config_.memory != nullptr) {
    return kWantsEqual;
  }
  const auto rate = static_cast<double>(endpoint.config().exchange.receive_rate.count());
  const double own = rate * endpoint.link_share(now).value_or(1.0) / kCapacityUnit;
  return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(own), 1, kMaxCapacity);
}

void Engine::survey(Key key, transport::Endpoint& endpoint, base::Instant now) {
  const auto found = running_.find(key);
  if (found == running_.end()) {
    return;  // everything has failed
  }
  const OperationRun& run = *found->second.run;
  const wire::MessageId like{.operation = key, .signature = run.signature()};
  found->second.notes = std::make_unique<SurveyNotes>(like, runs_.config());
  const RankNote own = ways_->own_note(own_capacity(endpoint, now), endpoint.has_all_streams());
  ways_->record(config_.group.rank, own);
  RunContext context = this->context(endpoint, now);
  after(key, found->second.notes->start(own, context), endpoint, now);
}

void Engine::on_note_event(const transport::Event& event, Key key, transport::Endpoint& endpoint,
                           base::Instant now) {
  SurveyNotes& notes = *running_.find(key)->second.notes;
  if (const auto* sent = std::get_if<transport::SendReport>(&event)) {
    notes.on_sent(*sent);
  } else {
    const auto& received = std::get<transport::ReceiveReport>(event);
    if (const std::optional<RankNote> note = notes.on_received(received)) {
      ways_->record(received.id.source, *note);
    }
  }
  after(key, {}, endpoint, now);
  start_waiting(endpoint, now);
}

// Notes that a rank did not send before it left are not needed: all operations that use them need
// that rank.
void Engine::leave_surveys(const Closed& closed, transport::Endpoint& endpoint, base::Instant now) {
  RunContext context = this->context(endpoint, now);
  std::vector<Key> over;
  for (const auto& [key, active] : running_) {
    if (active.notes && active.notes->on_left(closed.rank, context)) {
      ways_->give_up();
      over.push_back(key);
    }
  }
  for (const Key key : over) {
    after(key, {}, endpoint, now);
  }
}

}  // namespace spillway::collective
