// SPDX-License-Identifier: Apache-2.0
#include "collective/run_factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "collective/device_tensor.h"
#include "collective/entropy/entropy_run.h"
#include "collective/exact/plan.h"
#include "collective/halves.h"
#include "collective/summed/summed_run.h"
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
// Pieces of a server's shard: shorter ones would cut rows, and have too few packets to lose any.
constexpr std::size_t kLeastServerPiece = 128 * 1024;
// An encoded message surely carries one in so many of the bytes it carries as they are: packets
// have headers, rows are padded.
constexpr std::size_t kEncodedShare = 4;
// Part numbers of a tolerant operation that are reserved for messages other than its pieces.
constexpr std::size_t kReservedParts = 64;
// Below, a coded all-reduce goes directly even if hosts hold several ranks: two hops are over
// sooner than four, and a link is not felt.
constexpr std::size_t kLeastByLevels = std::size_t{256} << 10;

bool is_tolerant(const Operation& operation, const Group& group) {
  return operation.tolerance && group.world > 1 && operation.count > 0;
}

std::uint16_t owners_of(const Group& group) {
  return group.servers > 0 ? group.servers : group.world;
}

std::size_t longest_of(const Operation& operation, const Group& group) {
  return shard_of(tensor_elements(operation, owners_of(group)), owners_of(group), 0).count;
}

// Windows that fit the limits, the same at every rank of the group.
PlanOptions fitted(const EngineConfig& config, const ByteLayout& layout) {
  PlanOptions plan = config.plan;
  const std::size_t room = config.limits.messages / (kPlanFlows * config.group.world);
  plan.window = std::clamp<std::size_t>(room, 1, plan.window);
  plan.pair_window = std::clamp<std::size_t>(config.limits.pair_messages / config.group.world, 1,
                                             plan.pair_window);
  plan.max_message_bytes = layout.max_message_bytes();
  if (config.group.servers == 0 && config.hosts.are_adjacent()) {
    plan.host_ranks = config.hosts.ranks_per_host();
  }
  return plan;
}

// The exchange between hosts, seen from a rank: its counterparts, one per host, as a group of their
// own that knows nothing of hosts. Draws differ from place to place.
EngineConfig between_hosts(EngineConfig config) {
  const std::uint16_t rank = config.group.rank;
  const std::uint16_t place = config.hosts.place(rank);
  config.group = {config.hosts.host(rank),
                  static_cast<std::uint16_t>(config.hosts.counterparts(rank).size())};
  config.job.seed = base::derive_key(config.job.seed, {place, 0, 0, 0});
  config.memory = nullptr;
  config.hosts = {};
  config.plan.rack_ranks = 0;
  config.plan.host_ranks = 0;
  config.plan.most_pieces = std::clamp<std::size_t>(LevelsRun::kMostPieces / config.group.world, 1,
                                                    config.plan.most_pieces);
  config.limits.messages = std::max<std::size_t>(config.limits.messages / LevelsRun::kWindow, 1);
  return config;
}

// The name that a segment of a tensor has for error feedback and for tables; none if the tensor has
// none.
std::uint64_t segment_tensor(std::uint64_t tensor, std::size_t segment) {
  return tensor == 0
             ? 0
             : base::derive_key(tensor, {static_cast<std::uint32_t>(segment), 0, 0, 0}) | 1U;
}

// The operation on a run of its elements.
Operation on_extent(Operation operation, const Extent& extent) {
  const std::size_t offset = extent.first * element_size(operation.type);
  operation.input = static_cast<const std::uint8_t*>(operation.input) + offset;
  operation.output = static_cast<std::uint8_t*>(operation.output) + offset;
  operation.count = extent.count;
  return operation;
}

// A rank's share of a segment, in the tensor.
Extent share_of(const Extent& segment, const Group& on_host) {
  const Extent share = shard_of(segment.count, on_host.world, on_host.rank);
  return {segment.first + share.first, share.count};
}

}  // namespace

struct RunFactory::Levels {
  Levels(const EngineConfig& config, const RunConfig& whole, const ByteLayout& layout)
      : members(config.hosts, config.group.rank),
        memory(config.memory ? std::make_unique<MemberMemory>(*config.memory, members.mates)
                             : nullptr),
        on_host{{config.hosts.place(config.group.rank), members.mates.count()},
                whole.job,
                whole.layout,
                memory.get()},
        world(config.group.world),
        plan_on_host(config.plan),
        between(between_hosts(config), layout) {
    plan_on_host.most_pieces = std::min(plan_on_host.most_pieces, LevelsRun::kMostPieces);
  }

  // The longest of all shares of segments, as an operation.
  Operation longest_share(const Operation& operation) const {
    const Extent segment = shard_of(operation.count, LevelsRun::segments_of(operation, world), 0);
    return on_extent(operation, shard_of(segment.count, on_host.group.world, 0));
  }

  LevelMembers members;
  std::unique_ptr<MemberMemory> memory;  // null if this host's ranks share none
  RunConfig on_host;
  std::uint16_t world;
  PlanOptions plan_on_host;
  RunFactory between;
};

RunFactory::RunFactory(const EngineConfig& config, const ByteLayout& layout)
    : config_(config),
      run_config_{config.group, config.job, layout, config.memory},
      stream_config_{config.group, config.job, ByteLayout::on_stream(), config.memory},
      scratch_(config.limits.scratch_kept) {
  config_.plan = fitted(config, layout);
  if (config.hosts.are_even() && config.group.servers == 0) {
    levels_ = std::make_unique<Levels>(config_, run_config_, layout);
  }
}

RunFactory::~RunFactory() = default;

// ------------------------------------------------------------------ sizes

std::size_t RunFactory::tolerant_window() const {
  return std::clamp<std::size_t>(config_.limits.messages / (kTolerantFlows * config_.group.world),
                                 1, kTolerantWindow);
}

// With deadlines, and with sums, all pieces begin at once, so there are fewer.
std::size_t RunFactory::tolerant_piece_bytes(const Operation& operation) const {
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
        config_.group.servers > 0
            ? pipelined_piece_bytes(longest, kLeastServerPiece, options.piece_bytes)
            : std::clamp(longest / kPlanesPieces, options.piece_bytes,
                         options.piece_bytes * kLongPiece);
  }
  return piece_size(longest, sizeof(float), options.piece_bytes, options,
                    std::max<std::size_t>(most, 1));
}

ChunkOptions RunFactory::entropy_chunks(const Operation& operation) const {
  const std::uint16_t world = config_.group.world;
  const std::size_t sections = EntropyRun::sections_of(operation.tolerance->codec);
  return {.chunks = world,
          // Parts of ranks are blocks in a row, and equally many.
          .rule = is_half(operation) ? ChunkRule::kEqual : config_.entropy_chunks,
          // At two bytes a value, which is more than coding takes.
          .piece_values = std::max<std::size_t>(config_.plan.piece_bytes / 2, 1),
          .most_pieces = std::max<std::size_t>(
              config_.limits.messages / (EntropyRun::kPieceMessages * sections * world), 1)};
}

base::Status RunFactory::check_entropy_size(const Operation& operation) const {
  const ChunkOptions chunks = entropy_chunks(operation);
  const BlockGrid grid = grid_of(operation, chunks.chunks);
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

base::Status RunFactory::check_tolerant_size(const Operation& operation) const {
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

base::Status RunFactory::admit(const Operation& operation) const {
  const packetize::PacketLimits& limits = config_.packet_limits;
  const GroupPackets packets{.are_encrypted = config_.are_packets_encrypted,
                             .mtu = limits.mtu,
                             .overhead = limits.datagram_overhead()};
  if (base::Status status = validate(operation, config_.group, packets); !status.ok()) {
    return status;
  }
  if (!is_tolerant(operation, config_.group)) {
    return check_size(operation, config_.group, config_.plan);
  }
  return goes_by_levels(operation)
             ? levels_->between.check_tolerant_size(levels_->longest_share(operation))
             : check_tolerant_size(operation);
}

// ------------------------------------------------------------------ runs

base::Result<std::unique_ptr<OperationRun>> RunFactory::make(const Operation& operation,
                                                             std::uint64_t key,
                                                             const Ways::Choice& choice,
                                                             bool is_residual_free) {
  if (goes_by_levels(operation)) {
    return make_by_levels(operation, key, choice, is_residual_free);
  }
  if (is_tolerant(operation, config_.group)) {
    const base::Result<std::span<float>> residual =
        is_residual_free ? residual_of(operation) : std::span<float>();
    if (!residual.ok()) {
      return residual.status();
    }
    switch (operation.tolerance->codec) {
      case Codec::kPlanes:
        return make_tolerant(operation, key, choice, *residual);
      case Codec::kLevels:
      case Codec::kBlocks:
        return make_summed(operation, key, *residual);
      case Codec::kEntropy:
      case Codec::kSketch:
        return std::unique_ptr<OperationRun>(std::make_unique<EntropyRun>(
            operation, key, entropy_chunks(operation), run_config_, *residual, code_cache_,
            coder_pool_, config_on(choice.way.carrier).layout));
    }
  }
  Operation planned = operation;
  if (operation.algorithm == Algorithm::kAutomatic) {
    planned.algorithm = choice.way.algorithm;
  }
  Plan plan = make_plan(planned, config_.group, config_.plan, choice.shares);
  if (operation.device) {
    plan = on_device(plan, operation.bytes(), copy_bytes_of(operation.bytes()));
  }
  return std::unique_ptr<OperationRun>(
      std::make_unique<PlanRun>(operation, key, std::move(plan), config_on(choice.way.carrier),
                                PlanRun::Pools{scratch_, float_coders_}, choice.way.form));
}

// Deadlines stay with single ranks, because a late rank would make its host late. Tensors on a
// device are coded there, and go directly.
bool RunFactory::goes_by_levels(const Operation& operation) const {
  if (!levels_ || !operation.tolerance || operation.kind != Kind::kAllReduce) {
    return false;
  }
  const Tolerance& tolerance = *operation.tolerance;
  return (tolerance.codec == Codec::kPlanes || uses_entropy(tolerance.codec)) &&
         operation.algorithm == Algorithm::kAutomatic && operation.bytes() >= kLeastByLevels &&
         tolerance.least_contributors == 0.0 && !operation.device;
}

base::Result<std::unique_ptr<OperationRun>> RunFactory::make_by_levels(const Operation& operation,
                                                                       std::uint64_t key,
                                                                       const Ways::Choice& choice,
                                                                       bool is_residual_free) {
  const std::size_t count = LevelsRun::segments_of(operation, config_.group.world);
  const Ways::Choice way{.way = {.carrier = choice.way.carrier}};
  const PlanRun::Pools pools{scratch_, float_coders_};
  std::vector<LevelsRun::SegmentRuns> segments(count);
  for (std::size_t i = 0; i < count; ++i) {
    LevelsRun::SegmentRuns& segment = segments[i];
    segment.extent = shard_of(operation.count, count, i);
    segment.share = share_of(segment.extent, levels_->on_host.group);
    const Operation inside = on_extent(operation, segment.extent);
    const PlanTask task{inside, levels_->on_host.group, levels_->plan_on_host, {}};
    segment.sum = std::make_unique<PlanRun>(inside, key, plan_direct_sum_of_shards(task),
                                            levels_->on_host, pools, ByteForm::kPlain);
    segment.hand_out = std::make_unique<PlanRun>(inside, key, plan_direct_copy_of_shards(task),
                                                 levels_->on_host, pools, ByteForm::kPlain);
    Operation share = on_extent(operation, segment.share);
    share.input = share.output;
    share.tolerance->feedback_tensor = segment_tensor(operation.tolerance->feedback_tensor, i);
    base::Result<std::unique_ptr<OperationRun>> exchange =
        levels_->between.make(share, LevelsRun::segment_key(key, i), way, is_residual_free);
    if (!exchange.ok()) {
      return exchange.status();
    }
    segment.exchange = std::move(exchange).value();
  }
  return std::unique_ptr<OperationRun>(std::make_unique<LevelsRun>(
      operation, key, run_config_, levels_->members, std::move(segments)));
}

base::Result<std::unique_ptr<OperationRun>> RunFactory::make_tolerant(const Operation& operation,
                                                                      std::uint64_t key,
                                                                      const Ways::Choice& choice,
                                                                      std::span<float> residual) {
  const transport::Carrier carrier = choice.way.carrier;
  const bool is_stream = carrier == transport::Carrier::kStream;
  base::Result<TolerantLayout> layout =
      TolerantLayout::make(operation, config_.group, operation_number(key),
                           is_stream ? packetize::PacketLimits::on_stream() : config_.packet_limits,
                           tolerant_piece_bytes(operation), choice.shares, carrier);
  if (!layout.ok()) {
    return layout.status();
  }
  const Tolerance& tolerance = *operation.tolerance;
  const std::uint64_t alike = std::uint64_t{operation.count} << 20 |
                              static_cast<std::uint64_t>(operation.kind) << 16 |
                              std::uint64_t{tolerance.precision} << 8 | tolerance.gather_precision;
  return std::unique_ptr<OperationRun>(
      std::make_unique<TolerantRun>(operation, key, std::move(layout).value(), tolerant_window(),
                                    run_config_, paces_.of(alike), residual));
}

base::Result<std::unique_ptr<OperationRun>> RunFactory::make_summed(const Operation& operation,
                                                                    std::uint64_t key,
                                                                    std::span<float> residual) {
  base::Result<SumLayout> layout = SumLayout::make(
      operation, config_.group, tolerant_piece_bytes(operation), config_.plan.rack_ranks);
  if (!layout.ok()) {
    return layout.status();
  }
  return std::unique_ptr<OperationRun>(
      std::make_unique<SummedRun>(operation, key, std::move(layout).value(), run_config_, residual,
                                  scale_cache_.next(operation.tolerance->feedback_tensor)));
}

// Zeros if the tensor is new, was elsewhere or had another length before. Empty without error
// feedback.
base::Result<std::span<float>> RunFactory::residual_of(const Operation& operation) {
  const std::uint64_t tensor = operation.tolerance->feedback_tensor;
  const bool is_full = residuals_.size() >= config_.limits.feedback_tensors;
  if (tensor == 0 || config_.group.is_server() || (is_full && !residuals_.contains(tensor))) {
    return std::span<float>();
  }
  Residual& residual = residuals_[tensor];
  const bool is_on_device = operation.device != nullptr;
  const std::size_t count = input_bytes(operation, config_.group) / element_size(operation.type);
  if (residual.count != count || residual.is_on_device != is_on_device) {
    residual = {};
    base::Result<std::shared_ptr<float[]>> made =
        is_on_device ? operation.device->make_residual(count)
                     : std::shared_ptr<float[]>(new float[count]());
    if (!made.ok()) {
      return made.status();
    }
    residual = {std::move(made).value(), count, is_on_device};
  }
  return std::span<float>(residual.values.get(), residual.count);
}

std::size_t RunFactory::memory_bytes() const {
  std::size_t bytes = scratch_.kept_bytes() + scratch_.used_bytes() +
                      (levels_ ? levels_->between.memory_bytes() : 0);
  for (const auto& [tensor, residual] : residuals_) {
    bytes += residual.is_on_device ? 0 : residual.count * sizeof(float);
  }
  return bytes;
}

}  // namespace spillway::collective
