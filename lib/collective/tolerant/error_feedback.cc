// SPDX-License-Identifier: Apache-2.0
#include "collective/tolerant/error_feedback.h"

#include <algorithm>
#include <cmath>

#include "collective/device_tensor.h"
#include "collective/tolerant/own_values.h"

namespace spillway::collective {
namespace {

std::span<float> owed_of(const PieceContext& context, const PieceState& piece) {
  return context.residual.subspan(piece.place.extent.first, piece.place.extent.count);
}

void forget_unless_finite(std::span<float> owed) {
  if (!std::all_of(owed.begin(), owed.end(), [](float value) { return std::isfinite(value); })) {
    std::fill(owed.begin(), owed.end(), 0.0F);
  }
}

}  // namespace

std::vector<float> own_and_owed(const PieceContext& context, const PieceState& piece) {
  const OwnValues own(context.operation, piece.place.extent);
  std::vector<float> values(own.view().begin(), own.view().end());
  if (context.has_residual()) {
    add_values(owed_of(context, piece), values);
  }
  return values;
}

void keep(const PieceContext& context, const PieceState& piece, std::span<const float> values) {
  const std::span<float> owed = owed_of(context, piece);
  std::copy(values.begin(), values.end(), owed.begin());
  forget_unless_finite(owed);
}

void keep_input(const PieceContext& context, const PieceState& piece) {
  keep(context, piece, own_and_owed(context, piece));
}

base::Status settle_contribution(const PieceContext& context, const wire::MessageId& message,
                                 PieceState& piece) {
  if (context.operation.device) {
    const CodedSource& sent = *piece.contribution;
    return context.operation.device->settle(
        piece.place.extent, sent.plan(), packetize::rotation_key(context.config.job, message),
        sent.coded(), piece.receipt.used, context.owed(piece.place.extent));
  }
  const std::span<float> owed = owed_of(context, piece);
  if (context.may_drop()) {
    piece.whole.assign(owed.begin(), owed.end());
  }
  std::vector<float> used(owed.size());
  piece.contribution->decode_part(piece.receipt.used, used, context.config.job, message);
  for (std::size_t i = 0; i < owed.size(); ++i) {
    owed[i] -= used[i];
  }
  forget_unless_finite(owed);
  return {};
}

void restore(const PieceContext& context, PieceState& piece) {
  if (!piece.whole.empty()) {
    keep(context, piece, piece.whole);
    piece.whole.clear();
  }
}

}  // namespace spillway::collective
