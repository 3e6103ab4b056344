// SPDX-License-Identifier: Apache-2.0
//
// Decides which operations may be called, and when they begin, so that neither the size of one nor
// the number of all exhausts the endpoint's tables.
//
// An operation has a bounded number of messages under way at a time (plan.h, tolerant_run.h). The
// group's next one begins only while all running ones have less than limits.messages. No cycle of
// waiting can form. Take the first operation that has not ended everywhere. All before it have
// ended at every rank, so it has begun at every rank: operations begin in order, and one always
// may, whatever its size. From there on it needs only its own messages, for which every table has
// room. Urgent operations make it slower but never stop it. Its notes to late ranks in the
// background (those of an agreement included) are part of its messages.
//
// A large all-reduce may also wait for an earlier survey's notes (link_shares.h). Ranks send them
// as they begin that survey, an operation before it, so the notes do not depend on it.
//
// Sends have limits of their own, and so have receives. A receive has found its message when it
// begins, so it ends by itself. A send that waits for room waits for what other ranks have still to
// receive, and one message to each of them may always go. It never waits for operations of the
// group, nor do these for it.
//
// Calls to parameter servers have a limit, too. A server takes calls whether or not it has begun
// their operations, so room comes back by itself. Only a worker that is CallInbox::kMaxAhead
// operations ahead of the slowest waits for that one, which does not wait for it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collective/engine.h"
#include "collective/entropy/entropy_run.h"
#include "collective/summed/sum_piece.h"
#include "packetize/packet_plan.h"

namespace spillway::collective {
namespace {

// Messages of a piece with one peer, in all phases and both directions: in a plan, and at most in a
// tolerant operation (a contribution, a sum, a receipt, as an owner and as another's peer).
constexpr std::size_t kPlanFlows = 4;
constexpr std::size_t kTolerantFlows = 6;
// Pieces of a shard under way at a time in a tolerant operation.
constexpr std::size_t kTolerantWindow = 16;
// Shards of planes are cut into so many pieces, if these are then one to kLongPiece times the usual
// size: enough pieces to overlap, and each is worth its calculations and messages.
constexpr std::size_t kPlanesPieces = 8;
constexpr std::size_t kLongPiece = 4;
// An encoded message surely carries one in so many of the bytes it carries as they are: packets
// have headers, rows are padded.
constexpr std::size_t kEncodedShare = 4;
// Part numbers of a tolerant operation that are reserved for messages other than its pieces.
constexpr std::size_t kReservedParts = 64;

bool is_tolerant(const Operation& operation, const Group& group) {
  return operation.tolerance && group.world > 1 && operation.count > 0;
}

// True if this host's processors code it.
bool is_encoded_here(const Operation& operation) {
  return operation.tolerance && !operation.device;
}

std::uint16_t owners_of(const Group& group) {
  return group.servers > 0 ? group.servers : group.world;
}

std::size_t longest_of(const Operation& operation, const Group& group) {
  return shard_of(operation.count, owners_of(group), 0).count;
}

}  // namespace

// Windows that fit the limits, the same at every rank of the group.
PlanOptions Engine::fitted(const EngineConfig& config, const ByteLayout& layout) {
  PlanOptions plan = config.plan;
  const std::size_t room = config.limits.messages / (kPlanFlows * config.group.world);
  plan.window = std::clamp<std::size_t>(room, 1, plan.window);
  plan.pair_window = std::clamp<std::size_t>(config.limits.pair_messages / config.group.world, 1,
                                             plan.pair_window);
  plan.max_message_bytes = std::size_t{layout.bytes_per_packet} * SPILLWAY_MAX_PACKETS;
  return plan;
}

std::size_t Engine::tolerant_window() const {
  return std::clamp<std::size_t>(config_.limits.messages / (kTolerantFlows * config_.group.world),
                                 1, kTolerantWindow);
}

// With deadlines, and with sums, all pieces begin at once, so there are fewer.
std::size_t Engine::tolerant_piece_bytes(const Operation& operation) const {
  const std::size_t owners = owners_of(config_.group);
  std::size_t most = std::min(config_.plan.most_pieces, (kMaxParts - kReservedParts) / owners);
  if (operation.tolerance->least_contributors > 0.0 ||
      operation.tolerance->codec != Codec::kPlanes) {
    most = std::min(most, config_.limits.messages / kTolerantFlows / owners);
  }
  PlanOptions options = config_.plan;
  options.max_message_bytes /= kEncodedShare;
  const std::size_t longest = longest_of(operation, config_.group) * sizeof(float);
  if (operation.tolerance->codec == Codec::kPlanes) {
    options.piece_bytes =
        std::clamp(longest / kPlanesPieces, options.piece_bytes, options.piece_bytes * kLongPiece);
  }
  return piece_size(longest, sizeof(float), options.piece_bytes, options,
                    std::max<std::size_t>(most, 1));
}

ChunkOptions Engine::entropy_chunks(const Operation& operation) const {
  const std::uint16_t world = config_.group.world;
  const std::size_t sections = EntropyRun::sections_of(operation.tolerance->codec);
  return {.chunks = world,
          .rule = config_.entropy_chunks,
          // At two bytes a value, which is more than coding takes.
          .piece_values = std::max<std::size_t>(config_.plan.piece_bytes / 2, 1),
          .most_pieces = std::max<std::size_t>(
              config_.limits.messages / (EntropyRun::kPieceMessages * sections * world), 1)};
}

base::Status Engine::check_entropy_size(const Operation& operation) const {
  const ChunkOptions chunks = entropy_chunks(operation);
  const BlockGrid grid(operation.count, chunks.chunks);
  // Chunks of equal cost may be of any length.
  const std::size_t longest = chunks.rule == ChunkRule::kBalanced
                                  ? grid.blocks()
                                  : piece_count(grid.blocks(), chunks.chunks);
  std::size_t values =
      piece_count(longest, most_pieces_of_chunk(grid, chunks)) * grid.block_values();
  if (operation.tolerance->codec == Codec::kSketch) {
    // A section shorter than the tensor may be cut into fewer pieces, of up to so many values.
    values = std::max(values, chunks.piece_values + grid.block_values());
  }
  if (codec::entropy::max_message_bytes(values) > config_.plan.max_message_bytes) {
    return base::invalid_argument(
        fmt::format("{}: that is pieces of {} values, which are too many for one message; split it",
                    describe(operation), values));
  }
  return {};
}

base::Status Engine::check_tolerant_size(const Operation& operation) const {
  if (uses_entropy(operation.tolerance->codec)) {
    return check_entropy_size(operation);
  }
  const std::size_t piece_bytes = tolerant_piece_bytes(operation);
  const std::size_t longest = longest_of(operation, config_.group);
  const std::size_t owners = owners_of(config_.group);
  const std::size_t pieces = piece_count(longest, piece_bytes / sizeof(float)) * owners;
  if (pieces > kMaxParts - kReservedParts) {
    return base::invalid_argument(
        fmt::format("{}: that is {} pieces of {} bytes, and {} can be numbered; split it",
                    describe(operation), pieces, piece_bytes, kMaxParts - kReservedParts));
  }
  if (operation.tolerance->least_contributors > 0.0 &&
      pieces > std::max(owners, 2 * config_.limits.messages / kTolerantFlows)) {
    return base::invalid_argument(fmt::format(
        "{}: with least_contributors all of it is under way at once, in {} pieces of at most {} "
        "bytes, which is more than there is room for; split it, or wait for all ranks",
        describe(operation), pieces, piece_bytes));
  }
  if (operation.tolerance->codec != Codec::kPlanes) {
    return SumLayout::make(operation, config_.group, piece_bytes, config_.plan.rack_ranks).status();
  }
  const std::size_t elements = std::min(longest, piece_bytes / sizeof(float));
  for (const unsigned precision :
       {operation.tolerance->precision, operation.tolerance->gather_precision}) {
    const base::Result<packetize::PacketPlan> plan =
        packetize::PacketPlan::make(elements, config_.packet_limits, {.precision = precision});
    if (!plan.ok()) {
      return plan.status();
    }
  }
  return {};
}

base::Status Engine::validate_here(const Operation& operation) const {
  const packetize::PacketLimits& limits = config_.packet_limits;
  const GroupPackets packets{.are_encrypted = config_.are_packets_encrypted,
                             .mtu = limits.mtu,
                             .overhead = limits.datagram_overhead()};
  if (base::Status status = validate(operation, config_.group, packets); !status.ok()) {
    return status;
  }
  return is_tolerant(operation, config_.group) ? check_tolerant_size(operation)
                                               : check_size(operation, config_.group, config_.plan);
}

base::Status Engine::admit(const Operation& operation) const {
  if (config_.group.is_server()) {
    return base::invalid_argument(
        "a parameter server calls no operations: it does what the workers call");
  }
  return validate_here(operation);
}

// ------------------------------------------------------------------ operations of the group

// One operation may always run, however large, once there is room for its call and the notes of an
// earlier survey have come.
bool Engine::may_begin_next() const {
  const std::size_t servers = config_.group.servers;
  const bool may_call = !outbox_ || outbox_->size() == 0 ||
                        (outbox_->size() + 1) * servers <= config_.limits.call_messages;
  const bool has_notes = !has_shares(waiting_.front().operation) || !share_schedule_->is_waiting();
  if (!may_call || !has_notes || group_running_ == 0) {
    return may_call && has_notes;
  }
  const std::uint64_t oldest = running_.begin()->first;  // point-to-point keys come behind
  return group_running_ < config_.limits.running && messages_ < config_.limits.messages &&
         waiting_.front().sequence - oldest < config_.limits.ahead;
}

void Engine::start_waiting(transport::Endpoint& endpoint, base::Instant now) {
  while (!waiting_.empty() && !failure_ && may_begin_next()) {
    const Waiting waiting = waiting_.front();
    waiting_.pop_front();
    start(waiting, waiting.sequence, endpoint, now);
  }
}

std::size_t& Engine::messages_of(Key key) {
  if (is_point_to_point_key(key)) {
    return is_numbered_send(key) ? sent_messages_ : received_messages_;
  }
  return messages_;
}

void Engine::count_in(Key key, const OperationRun& run) {
  group_running_ += is_point_to_point_key(key) ? 0 : 1;
  coding_ += is_encoded_here(run.operation()) ? 1 : 0;
  messages_of(key) += run.message_count();
}

void Engine::count_out(Key key, const OperationRun& run) {
  group_running_ -= is_point_to_point_key(key) ? 0 : 1;
  coding_ -= is_encoded_here(run.operation()) ? 1 : 0;
  messages_of(key) -= run.message_count();
}

// ------------------------------------------------------------------ sends and receives

// One send to every peer may always run: the peer may wait for it before it receives anything else.
void Engine::send_in_turn(const Waiting& waiting, Key key, transport::Endpoint& endpoint,
                          base::Instant now) {
  SendsTo& sends = sends_to_[waiting.operation.root];
  if (sends.held.empty() && (sends.running == 0 || sent_messages_ < config_.limits.pair_messages)) {
    ++sends.running;
    start(waiting, key, endpoint, now);
    return;
  }
  sends.held.push_back({waiting, key});
  ++held_sends_;
}

// Point-to-point operations have ended, a send to `peer` if one is named.
void Engine::use_room_for_pairs(std::optional<std::uint16_t> peer, transport::Endpoint& endpoint,
                                base::Instant now) {
  if (peer) {
    --sends_to_[*peer].running;
  }
  for (SendsTo& sends : sends_to_) {
    while (!sends.held.empty() && !failure_ &&
           (sends.running == 0 || sent_messages_ < config_.limits.pair_messages)) {
      const HeldSend held = std::move(sends.held.front());
      sends.held.pop_front();
      --held_sends_;
      ++sends.running;
      start(held.waiting, held.key, endpoint, now);
    }
    if (held_sends_ == 0) {
      break;
    }
  }
  start_matched(endpoint, now);
}

}  // namespace spillway::collective
