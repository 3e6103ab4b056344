// SPDX-License-Identifier: Apache-2.0
//
// Error feedback at one rank: what sums lack of its gradients is kept, and added to the tensor's
// next contribution. Whenever no operation of the tensor is under way, its residual is exactly
// that: inputs so far are what sums have used plus the residual, to float rounding.
//
//   own_plus_residual()          input plus residual: what this rank contributes
//   keep()                  it was encoded, or is in the owner's own sum: the residual is all of it
//                           or nothing, until more is known
//   settle_contribution()   the owner's receipt came: subtracts the estimate that is in the sum
//   keep_input()            nothing is contributed this time: the input joins the residual
//   restore()               the piece's shard was dropped: all of it is owed again
//
// A contribution with a NaN or an infinity in it is forgotten: a bad step must not spoil later
// ones. Calculations may run on any thread, one at a time per piece; they touch only the piece's
// extent of residual and input.
#pragma once

#include <span>
#include <vector>

#include "collective/tolerant/tolerant_piece.h"

namespace spillway::collective {

// This rank's input for the piece, plus the residual if error feedback is on.
std::vector<float> own_plus_residual(const PieceContext& context, const PieceState& piece);
// `values` become the piece's residual.
void keep(const PieceContext& context, const PieceState& piece, std::span<const float> values);
void keep_input(const PieceContext& context, const PieceState& piece);
// `message`: the contribution's. Remembers all of the contribution if the shard may still be
// dropped. Fails only if a device does.
base::Status settle_contribution(const PieceContext& context, const wire::MessageId& message,
                                 PieceState& piece);
// If nothing is remembered, the residual is all of it already.
void restore(const PieceContext& context, PieceState& piece);

}  // namespace spillway::collective
