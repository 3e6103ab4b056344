// SPDX-License-Identifier: Apache-2.0
//
// Error feedback at one rank: what of its gradients has not got into any sum yet, to be added to
// the tensor's next contribution. A tensor's residual is that, exactly, whenever no operation of it
// is under way: inputs so far are what sums have used plus the residual, to float rounding.
//
//   own_and_owed()          input and residual together are what this rank contributes
//   keep()                  it was encoded, or is in the owner's own sum: the residual is all of it
//                           or nothing, until more is known
//   settle_contribution()   the owner's receipt is there: less the estimate that is in the sum
//   keep_input()            nothing is contributed this time: the input joins the residual
//   restore()               the piece's shard was dropped: all of it is owed again
//
// A contribution with a NaN or an infinity in it is forgotten: a bad step must not spoil the ones
// behind it. Calculations: may run on any thread, one at a time per piece; of residual and input
// they touch the piece's extent.
#pragma once

#include <span>
#include <vector>

#include "collective/tolerant/tolerant_piece.h"

namespace spillway::collective {

// This rank's input for the piece, and what it is owed if error feedback is on.
std::vector<float> own_and_owed(const PieceContext& context, const PieceState& piece);
// Becomes the piece's residual.
void keep(const PieceContext& context, const PieceState& piece, std::span<const float> values);
void keep_input(const PieceContext& context, const PieceState& piece);
// `message`: of the contribution. Remembers all of it where the shard may still be dropped.
// Fails only where a device does.
base::Status settle_contribution(const PieceContext& context, const wire::MessageId& message,
                                 PieceState& piece);
// Where nothing is remembered the residual is all of it already.
void restore(const PieceContext& context, PieceState& piece);

}  // namespace spillway::collective
