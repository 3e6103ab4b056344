// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant/error_feedback.h"

#include <algorithm>
#include <cmath>

#include "collective/device_tensor.h"
#include "collective/reduction.h"

namespace spillway::collective {
namespace {

std::span<float> residual_of(const PieceContext& context, const PieceState& piece) {
  const Extent extent = context.in_input(piece.place.extent);
  return context.residual.subspan(extent.first, extent.count);
}

void clear_unless_finite(std::span<float> residual) {
  if (!std::all_of(residual.begin(), residual.end(),
                   [](float value) { return std::isfinite(value); })) {
    std::fill(residual.begin(), residual.end(), 0.0F);
  }
}

}  // namespace

std::vector<float> own_plus_residual(const PieceContext& context, const PieceState& piece) {
  const OwnValues own(context.operation, context.in_input(piece.place.extent));
  std::vector<float> values(own.view().begin(), own.view().end());
  if (context.has_residual()) {
    add_values(residual_of(context, piece), values);
  }
  return values;
}

void keep(const PieceContext& context, const PieceState& piece, std::span<const float> values) {
  const std::span<float> residual = residual_of(context, piece);
  std::copy(values.begin(), values.end(), residual.begin());
  clear_unless_finite(residual);
}

void keep_input(const PieceContext& context, const PieceState& piece) {
  keep(context, piece, own_plus_residual(context, piece));
}

base::Status settle_contribution(const PieceContext& context, const wire::MessageId& message,
                                 PieceState& piece) {
  if (context.operation.device) {
    const PlaneSource& sent = *piece.contribution;
    return context.operation.device->settle(
        piece.place.extent, sent.plan(), packetize::rotation_key(context.config.job, message),
        sent.coded(), piece.receipt.used, context.residual_at(piece.place.extent));
  }
  const std::span<float> residual = residual_of(context, piece);
  if (context.may_drop()) {
    piece.whole.assign(residual.begin(), residual.end());
  }
  std::vector<float> used(residual.size());
  piece.contribution->decode_part(piece.receipt.used, used, context.config.job, message);
  for (std::size_t i = 0; i < residual.size(); ++i) {
    residual[i] -= used[i];
  }
  clear_unless_finite(residual);
  return {};
}

void restore(const PieceContext& context, PieceState& piece) {
  if (!piece.whole.empty()) {
    keep(context, piece, piece.whole);
    piece.whole.clear();
  }
}

}  // namespace spillway::collective
