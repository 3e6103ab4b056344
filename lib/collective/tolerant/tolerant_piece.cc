// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant/tolerant_piece.h"

#include <algorithm>
#include <utility>

#include "collective/device_tensor.h"
#include "collective/reduction.h"
#include "collective/tolerant/error_feedback.h"

namespace spillway::collective {
namespace {

void store(const PieceContext& context, const Extent& extent, std::span<const float> values) {
  const DataType type = context.operation.type;
  const std::size_t first = context.in_output(extent).first;
  convert_from_float(
      type, values.data(), extent.count,
      static_cast<std::uint8_t*>(context.operation.output) + first * element_size(type));
}

void scale(std::span<float> values, float factor) {
  for (float& value : values) {
    value *= factor;
  }
}

// A row counts, if it need not, up to this expected error, squared and over its energy. Without the
// rank the error is at most that, and less the more alike the ranks' gradients are. Error feedback
// needs the limit, too: residuals greater than what they are left of would grow.
constexpr double kWorstErrorOfRow = 1.0;

// Forms sums at their owner, a row at a time: the parts of all ranks are rotated back, added up and
// scaled while it is in the first-level cache.
class RowSums {
 public:
  // `sums` holds the owner's own part already, if it has one.
  RowSums(const PieceState& piece, bool has_own_part, bool has_feedback, std::span<float> sums)
      : piece_(piece),
        rows_(piece.result->plan().layout()),
        has_own_part_(has_own_part),
        has_feedback_(has_feedback),
        sums_(sums) {}

  // Scales a row that lacks ranks up to all of them: its contributors stand for `parts` ranks. A
  // row of which nothing came is zero, and absent. Returns which rows have how many ranks.
  Receipt add_up(float parts) {
    Receipt receipt;
    unsigned fewest = 0;
    for (std::size_t index = 0; index < rows_.row_count(); ++index) {
      const codec::Row row = rows_.row(index);
      const unsigned contributors = add_up_row(index, row);
      receipt.absent.push_back(contributors == 0);
      if (contributors > 0) {
        scale(sums_.subspan(row.offset, row.values), parts / static_cast<float>(contributors));
        fewest = fewest == 0 ? contributors : std::min(fewest, contributors);
      }
    }
    receipt.contributors = static_cast<std::uint16_t>(fewest);
    return receipt;
  }

  // The same without adding: gives the factor of each row of the sum.
  Receipt weigh(float parts, std::vector<float>& factors) const {
    Receipt receipt;
    unsigned fewest = 0;
    for (std::size_t row = 0; row < rows_.row_count(); ++row) {
      unsigned contributors = has_own_part_ ? 1 : 0;
      for (std::size_t from = 0; from < piece_.contributions.size(); ++from) {
        contributors += counts(from, row) ? 1 : 0;
      }
      receipt.absent.push_back(contributors == 0);
      factors.push_back(contributors == 0 ? 0.0F : parts / static_cast<float>(contributors));
      if (contributors > 0) {
        fewest = fewest == 0 ? contributors : std::min(fewest, contributors);
      }
    }
    receipt.contributors = static_cast<std::uint16_t>(fewest);
    return receipt;
  }

  // Per packet of a rank's contribution: bytes of planes that are in the sums.
  std::vector<std::uint16_t> used_of(std::size_t from) const {
    const PlaneSink& sink = *piece_.contributions[from];
    std::vector<std::uint16_t> used(sink.plan().packet_count());
    for (std::size_t row = 0; row < rows_.row_count(); ++row) {
      if (!counts(from, row)) {
        continue;
      }
      const std::size_t first = sink.plan().first_packet(row);
      for (std::size_t packet = first; packet < first + sink.plan().packets_in(row); ++packet) {
        used[packet] = sink.bytes_of(packet);
      }
    }
    return used;
  }

 private:
  unsigned add_up_row(std::size_t index, const codec::Row& row) {
    unsigned contributors = has_own_part_ ? 1 : 0;
    for (std::size_t from = 0; from < piece_.contributions.size(); ++from) {
      if (!counts(from, index)) {
        continue;
      }
      PlaneSink* const sink = piece_.contributions[from].get();
      sink->finish_row(index);
      add_values(sink->values().subspan(row.offset, row.values),
                 sums_.subspan(row.offset, row.values));
      ++contributors;
    }
    return contributors;
  }

  bool counts(std::size_t from, std::size_t row) const {
    const PlaneSink* const sink = piece_.contributions[from].get();
    if (sink == nullptr || !sink->has_row(row)) {
      return false;
    }
    const bool must = !piece_.was_cut[from] && !has_feedback_;
    return must || sink->expected_error_of_row(row) <= kWorstErrorOfRow;
  }

  const PieceState& piece_;
  const codec::RowLayout& rows_;
  bool has_own_part_;
  bool has_feedback_;
  std::span<float> sums_;
};

// The owner's part of a sum, plus its residual: the sum has all of it.
std::vector<float> own_part_of_sum(const PieceContext& context, PieceState& piece) {
  std::vector<float> part = own_plus_residual(context, piece);
  if (context.has_residual()) {
    if (context.may_drop()) {
      piece.whole = part;
    }
    keep(context, piece, std::vector<float>(part.size(), 0.0F));
  }
  return part;
}

// Ranks packets of a message that may lose something, unless the caller wants all packets alike.
void rank_packets(const PieceContext& context, PlaneSource& source) {
  const Tolerance& tolerance = *context.operation.tolerance;
  if (!tolerance.importance && tolerance.expendable() > 0 && tolerance.loss_bound_ppm > 0) {
    source.rank_packets(tolerance.expendable());
  }
}

void write_receipts(const PieceContext& context, const RowSums& rows, PieceState& piece) {
  piece.receipts.resize(piece.contributions.size());
  for (std::size_t to = 0; to < piece.contributions.size(); ++to) {
    if (piece.contributions[to]) {
      Receipt receipt = piece.receipt;
      receipt.used = context.has_feedback() ? rows.used_of(to) : std::vector<std::uint16_t>();
      piece.receipts[to] = encode_receipt(receipt);
    }
  }
}

float parts_of(const PieceContext& context) {
  const bool averages = context.operation.op == ReduceOp::kAverage;
  return averages ? 1.0F : static_cast<float>(context.config.group.workers());
}

void drop_contributions(PieceState& piece) {
  for (std::unique_ptr<PlaneSink>& contribution : piece.contributions) {
    contribution.reset();
  }
}

// ------------------------------------------------------------------ on a device

base::Status encode_on_device(const PieceContext& context, const wire::MessageId& message,
                              PieceState& piece) {
  DeviceTensor& device = *context.operation.device;
  const packetize::PacketPlan& plan = piece.contribution->plan();
  base::Result<packetize::KeptPlanes> coded = device.make_planes(plan);
  if (!coded.ok()) {
    return coded.status();
  }
  const base::Status status =
      device.encode(piece.place.extent, plan, packetize::rotation_key(context.config.job, message),
                    context.residual_at(piece.place.extent), coded.value());
  piece.contribution->adopt(std::move(coded).value());
  return status;
}

base::Status add_up_on_device(const PieceContext& context, const wire::MessageId& message,
                              PieceState& piece) {
  DeviceTensor& device = *context.operation.device;
  const packetize::PacketPlan& plan = piece.result->plan();
  const RowSums rows(piece, true, context.has_feedback(), {});
  DeviceSum sum{plan,
                {},
                {},
                plan,
                packetize::rotation_key(context.config.job, message),
                context.residual_at(piece.place.extent)};
  piece.receipt = rows.weigh(parts_of(context), sum.factors);
  if (has_receipts(context.operation, context.config.group)) {
    write_receipts(context, rows, piece);
  }
  for (std::size_t from = 0; from < piece.contributions.size(); ++from) {
    if (const PlaneSink* const sink = piece.contributions[from].get()) {
      sum.contribution_plan = sink->plan();
      sum.contributions.push_back({&sink->kept(), rows.used_of(from), sink->key()});
    }
  }
  base::Result<packetize::KeptPlanes> coded = device.make_planes(plan);
  if (!coded.ok()) {
    return coded.status();
  }
  const base::Status status = device.add_up(piece.place.extent, sum, coded.value());
  drop_contributions(piece);
  piece.result->adopt(std::move(coded).value());
  return status;
}

}  // namespace

base::Result<TolerantLayout> TolerantLayout::make(const Operation& operation, const Group& group,
                                                  std::uint64_t sequence,
                                                  const packetize::PacketLimits& limits,
                                                  std::size_t piece_bytes, const Shares& shares,
                                                  transport::Carrier carrier) {
  const Tolerance& tolerance = *operation.tolerance;
  TolerantLayout layout;
  layout.limits = limits;
  layout.carrier = carrier;
  layout.reduce_encoding = {.precision = tolerance.precision};
  layout.gather_encoding = {.precision = tolerance.gather_precision};
  const std::size_t most = std::max<std::size_t>(1, piece_bytes / sizeof(float));
  const std::uint16_t owners = group.servers > 0 ? group.servers : group.world;
  const std::size_t count = tensor_elements(operation, owners);
  std::size_t first = 0;
  for (std::uint16_t shard = 0; shard < owners; ++shard) {
    const std::size_t whose = is_half(operation) ? shard : (shard + sequence) % owners;
    const std::size_t whose_share = shares.are_equal() ? shard : whose;
    const Extent extent{first, shard_of(count, owners, whose_share, shares).count};
    const auto owner = static_cast<std::uint16_t>(group.world - owners + whose);
    first += extent.count;
    for (std::size_t k = 0; k < piece_count(extent.count, most); ++k) {
      layout.pieces.push_back({piece_of(extent, most, k), shard, owner});
    }
  }
  if (layout.pieces.size() > kMaxPieces) {
    return base::invalid_argument("too many pieces for one operation; split the tensor");
  }
  // One piece of each length tells whether all fit.
  for (const TolerantPiece* piece : {&layout.pieces.front(), &layout.pieces.back()}) {
    for (const auto& plan : {layout.reduce_plan(*piece), layout.gather_plan(*piece)}) {
      if (!plan.ok()) {
        return plan.status();
      }
    }
  }
  return layout;
}

base::Result<packetize::PacketPlan> TolerantLayout::reduce_plan(const TolerantPiece& piece) const {
  return packetize::PacketPlan::make(piece.extent.count, limits, reduce_encoding);
}

base::Result<packetize::PacketPlan> TolerantLayout::gather_plan(const TolerantPiece& piece) const {
  return packetize::PacketPlan::make(piece.extent.count, limits, gather_encoding);
}

base::Status encode_contribution(const PieceContext& context, const wire::MessageId& message,
                                 PieceState& piece) {
  if (context.operation.device) {
    if (base::Status status = encode_on_device(context, message, piece); !status.ok()) {
      return status;
    }
  } else if (!context.has_residual()) {
    const OwnValues own(context.operation, context.in_input(piece.place.extent));
    piece.contribution->encode(own.view(), context.config.job, message);
  } else {
    const std::vector<float> values = own_plus_residual(context, piece);
    piece.contribution->encode(values, context.config.job, message);
    keep(context, piece, values);
  }
  rank_packets(context, *piece.contribution);
  return {};
}

base::Status add_up_contributions(const PieceContext& context, const wire::MessageId& message,
                                  PieceState& piece) {
  if (context.operation.device) {
    return add_up_on_device(context, message, piece);
  }
  const bool has_part = !context.config.group.is_server();
  std::vector<float> sums =
      has_part ? own_part_of_sum(context, piece) : std::vector<float>(piece.place.extent.count);
  RowSums rows(piece, has_part, context.has_feedback(), sums);
  piece.receipt = rows.add_up(parts_of(context));
  if (has_receipts(context.operation, context.config.group)) {
    write_receipts(context, rows, piece);
  }
  drop_contributions(piece);
  if (!has_results(context.operation)) {
    store(context, piece.place.extent, sums);
    return {};
  }
  piece.result->encode(sums, context.config.job, message);
  if (has_part) {
    piece.result->decode(sums, context.config.job, message);
    store(context, piece.place.extent, sums);
  }
  return {};
}

base::Status encode_own_part(const PieceContext& context, const wire::MessageId& message,
                             PieceState& piece) {
  std::vector<float> part = own_plus_residual(context, piece);
  piece.result->encode(part, context.config.job, message);
  std::vector<float> decoded(part.size());
  piece.result->decode(decoded, context.config.job, message);
  if (context.has_residual()) {
    for (std::size_t i = 0; i < part.size(); ++i) {
      part[i] -= decoded[i];
    }
    keep(context, piece, part);
  }
  store(context, piece.place.extent, decoded);
  return {};
}

base::Status decode_sum(const PieceContext& context, PieceState& piece) {
  piece.sum->finish();
  if (context.operation.device) {
    return context.operation.device->decode(piece.place.extent, piece.sum->plan(), piece.sum->key(),
                                            piece.sum->kept());
  }
  store(context, piece.place.extent, piece.sum->values());
  return {};
}

void clear_output(const PieceContext& context, const PieceState& piece) {
  store(context, piece.place.extent, std::vector<float>(piece.place.extent.count, 0.0F));
}

}  // namespace spillway::collective
