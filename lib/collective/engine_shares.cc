// SPDX-License-Identifier: Apache-2.0
//
// The engine's part in shares: which operations they matter to, what this rank says in a survey,
// and when a survey is over (share_book.h).
//
// Every rank takes part in every survey, whatever its own rule is: a rank that wants equal shares
// says so. So ranks that are configured differently still agree.
#include <algorithm>

#include "collective/engine.h"

namespace spillway::collective {
namespace {

// Smaller operations are over before a link's load matters.
constexpr std::size_t kLeastBytes = std::size_t{1} << 20;
// Among more ranks a share is too small to gain much.
constexpr std::uint16_t kMostRanks = 64;
// Pieces are numbered beside notes and receipts; uneven shards have a few more of them.
constexpr std::size_t kMostPieces = kMaxParts / 2;

constexpr std::uint64_t kWantsEqual = 0;
constexpr double kCapacityUnit = 1'000.0;  // bits per second

}  // namespace

// Not for coded numbers, whose chunks are cut by cost. Not with deadlines: all pieces are then
// under way at once, in room for those of equal shards, and nobody waits for a late rank, or for
// its note.
bool Engine::has_shares(const Operation& operation) const {
  if (!share_book_ || config_.group.world > kMostRanks || operation.kind != Kind::kAllReduce ||
      operation.bytes() < kLeastBytes ||
      operation.bytes() / config_.plan.piece_bytes >= kMostPieces ||
      (operation.tolerance &&
       (operation.tolerance->least_contributors > 0.0 || is_coded(operation.tolerance->code)))) {
    return false;
  }
  return operation.tolerance ||
         choose_algorithm(operation, config_.group, config_.plan) == Algorithm::kDirect;
}

Engine::ShareUse Engine::share_out(const Operation& operation) {
  if (!has_shares(operation)) {
    return {};
  }
  const bool is_survey = share_book_->begin(operation.bytes());
  return {share_book_->shares(), is_survey};
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
  found->second.notes = std::make_unique<CapacityNotes>(like, run_config_);
  const std::uint64_t own = own_capacity(endpoint, now);
  share_book_->record(config_.group.rank, own);
  RunContext context = this->context(endpoint, now);
  after(key, found->second.notes->start(own, context), endpoint, now);
}

void Engine::on_note_event(const transport::Event& event, Key key, transport::Endpoint& endpoint,
                           base::Instant now) {
  CapacityNotes& notes = *running_.find(key)->second.notes;
  if (const auto* sent = std::get_if<transport::SendReport>(&event)) {
    notes.on_sent(*sent);
  } else {
    const auto& received = std::get<transport::ReceiveReport>(event);
    if (const std::optional<std::uint64_t> capacity = notes.on_received(received)) {
      share_book_->record(received.id.source, *capacity);
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
      share_book_->give_up();
      over.push_back(key);
    }
  }
  for (const Key key : over) {
    after(key, {}, endpoint, now);
  }
}

}  // namespace spillway::collective
