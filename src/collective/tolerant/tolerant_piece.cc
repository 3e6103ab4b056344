// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant/tolerant_piece.h"

#include <algorithm>
#include <cmath>

#include "collective/reduction.h"

namespace spillway::collective {
namespace {

// The caller's elements as floats: where they are, if that is what they are.
class OwnValues {
 public:
  OwnValues(const PieceContext& context, const Extent& extent) {
    const DataType type = context.operation.type;
    const auto* const elements = static_cast<const std::uint8_t*>(context.operation.input) +
                                 extent.first * element_size(type);
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(elements) % alignof(float) == 0;
    if (type == DataType::kFloat32 && is_aligned) {
      view_ = {reinterpret_cast<const float*>(elements), extent.count};
      return;
    }
    converted_.resize(extent.count);
    convert_to_float(type, elements, extent.count, converted_.data());
    view_ = converted_;
  }
  OwnValues(const OwnValues&) = delete;
  OwnValues& operator=(const OwnValues&) = delete;

  std::span<const float> view() const { return view_; }

 private:
  std::vector<float> converted_;
  std::span<const float> view_;
};

void store(const PieceContext& context, const Extent& extent, std::span<const float> values) {
  const DataType type = context.operation.type;
  convert_from_float(
      type, values.data(), extent.count,
      static_cast<std::uint8_t*>(context.operation.output) + extent.first * element_size(type));
}

// What the planes that came of a sum leave open, beside those the owner has.
double expected_drift(const packetize::DeliveryReport& report, unsigned planes) {
  const auto all = static_cast<double>(std::max<std::size_t>(report.coordinates(), 1));
  double drift = 0.0;
  for (unsigned came = 1; came < planes; ++came) {
    drift += static_cast<double>(report.coordinates_by_planes[came]) / all *
             codec::expected_nmse(came, codec::Estimate::kUnbiased);
  }
  const double lost = report.lost_fraction();
  return drift + (lost < 1.0 ? lost / (1.0 - lost) : 1.0);
}

void add(std::span<const float> part, std::span<float> sum) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] += part[i];
  }
}

void scale(std::span<float> values, float factor) {
  for (float& value : values) {
    value *= factor;
  }
}

// Where a share s of a row came, made up for, its relative error is (1 - s) / s. Without the rank
// it is at most 1, and less the more alike the ranks' gradients are.
constexpr double kMinShareOfCutRow = 0.5;

// Sums at their owner, a row at a time: what came of it from all ranks is rotated back, added up
// and scaled while it is in the first-level cache.
class RowSums {
 public:
  // The owner's own part, if it has one, is in `sums` already.
  RowSums(const PieceState& piece, bool has_own_part, std::span<float> sums)
      : piece_(piece),
        rows_(piece.result->plan().layout()),
        has_own_part_(has_own_part),
        sums_(sums),
        is_in_(piece.contributions.size(), false) {}

  // A row in which ranks are missing is scaled up to all of them: `parts` is what its contributors
  // stand for. One of which nothing came from anybody is zero.
  void add_up(float parts) {
    for (std::size_t index = 0; index < rows_.row_count(); ++index) {
      const codec::Row row = rows_.row(index);
      const unsigned contributors = add_up_row(index, row);
      if (contributors > 0) {
        scale(sums_.subspan(row.offset, row.values), parts / static_cast<float>(contributors));
      }
    }
  }

  // Ranks of which something is in the sums.
  std::uint16_t contributors() const {
    const auto others = std::count(is_in_.begin(), is_in_.end(), true);
    return static_cast<std::uint16_t>(others + (has_own_part_ ? 1 : 0));
  }

 private:
  unsigned add_up_row(std::size_t index, const codec::Row& row) {
    unsigned contributors = has_own_part_ ? 1 : 0;
    for (std::size_t from = 0; from < is_in_.size(); ++from) {
      if (!counts(from, index)) {
        continue;
      }
      CodedSink* const sink = piece_.contributions[from].get();
      sink->finish_row(index);
      add(sink->values().subspan(row.offset, row.values), sums_.subspan(row.offset, row.values));
      is_in_[from] = true;
      ++contributors;
    }
    return contributors;
  }

  bool counts(std::size_t from, std::size_t row) const {
    const CodedSink* const sink = piece_.contributions[from].get();
    if (sink == nullptr || !sink->has_row(row)) {
      return false;
    }
    return !piece_.was_cut[from] || sink->share_of_row(row) >= kMinShareOfCutRow;
  }

  const PieceState& piece_;
  const codec::RowLayout& rows_;
  bool has_own_part_;
  std::span<float> sums_;
  std::vector<bool> is_in_;  // by rank
};

}  // namespace

base::Result<TolerantLayout> TolerantLayout::make(const Operation& operation, const Group& group,
                                                  std::uint32_t sequence,
                                                  const packetize::PacketLimits& limits, bool keyed,
                                                  std::size_t piece_bytes) {
  const Tolerance& tolerance = *operation.tolerance;
  TolerantLayout layout;
  layout.limits = limits;
  layout.reduce_encoding = {.precision = tolerance.precision, .keyed = keyed};
  layout.gather_encoding = {.precision = tolerance.gather_precision, .keyed = keyed};
  const std::size_t most = std::max<std::size_t>(1, piece_bytes / sizeof(float));
  const std::uint16_t owners = group.servers > 0 ? group.servers : group.world;
  for (std::uint16_t shard = 0; shard < owners; ++shard) {
    const Extent extent = shard_of(operation.count, owners, shard);
    const auto owner =
        static_cast<std::uint16_t>(group.world - owners + (shard + sequence) % owners);
    for (std::size_t k = 0; k < piece_count(extent.count, most); ++k) {
      layout.pieces.push_back({piece_of(extent, most, k), shard, owner});
    }
  }
  if (layout.pieces.size() > UINT16_MAX) {
    return base::invalid_argument("too many pieces for one operation; split the tensor");
  }
  // One of each length tells whether all fit.
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

void encode_contribution(const PieceContext& context, const wire::MessageId& message,
                         PieceState& piece) {
  const OwnValues own(context, piece.place.extent);
  if (context.residual.empty()) {
    piece.contribution->encode(own.view(), context.config.job, message);
    return;
  }
  std::vector<float> values(own.view().begin(), own.view().end());
  const std::span<float> owed = context.residual.subspan(piece.place.extent.first, values.size());
  add(owed, values);
  piece.contribution->encode(values, context.config.job, message);
  piece.contribution->decode(owed, context.config.job, message);
  bool is_finite = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    owed[i] = values[i] - owed[i];
    is_finite = is_finite && std::isfinite(owed[i]);
  }
  if (!is_finite) {
    std::fill(owed.begin(), owed.end(), 0.0F);  // a bad step is not remembered for ever
  }
}

void add_up_contributions(const PieceContext& context, const wire::MessageId& message,
                          PieceState& piece) {
  const bool has_part = !context.config.group.is_server();
  std::vector<float> sums(piece.place.extent.count);
  if (has_part) {
    const OwnValues own(context, piece.place.extent);
    std::copy(own.view().begin(), own.view().end(), sums.begin());
  }
  RowSums rows(piece, has_part, sums);
  const bool averages = context.operation.op == ReduceOp::kAverage;
  rows.add_up(averages ? 1.0F : static_cast<float>(context.config.group.workers()));
  piece.contributors = rows.contributors();
  for (std::unique_ptr<CodedSink>& contribution : piece.contributions) {
    contribution.reset();
  }
  piece.result->encode(sums, context.config.job, message);
  if (has_part) {
    piece.result->decode(sums, context.config.job, message);
    store(context, piece.place.extent, sums);
  }
}

void decode_sum(const PieceContext& context, PieceState& piece) {
  const packetize::DeliveryReport report = piece.sum->finish();
  const Tolerance& tolerance = *context.operation.tolerance;
  piece.drift = tolerance.lossy_gather ? expected_drift(report, tolerance.gather_precision) : 0.0;
  store(context, piece.place.extent, piece.sum->values());
}

void clear_output(const PieceContext& context, const PieceState& piece) {
  store(context, piece.place.extent, std::vector<float>(piece.place.extent.count, 0.0F));
}

}  // namespace spillway::collective
