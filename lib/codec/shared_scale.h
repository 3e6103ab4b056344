// SPDX-License-Identifier: Apache-2.0
//
// The one scale per row that all ranks code with. Numbers can be added only if their unit is the
// same for all ranks.
//
// Each rank reports one float per row, its measure: for level codes the row's root mean square
// (rotate_for_levels), for block codes its largest magnitude (measure_block). A measure is zero or
// more, or NaN if the row is not finite. The shared scale is the largest measure, in one of two
// ways:
//
//   exact       measures travel ahead of the data, while rows are rotated
//   predicted   predict_scale() of the last step's largest measure; measures travel beside the
//   data,
//               for the next step, and clipped values are counted
//
// Special scales mean the same for all ranks: 0 is a row of zeros, NaN a row of NaN. A prediction
// cannot express either, so its users decode to NaN if a measure turns out to be NaN.
//
// Pure functions; any thread.
#pragma once

namespace spillway::codec {

// True if the scale is zero or NaN.
bool is_special_scale(float scale);

// The larger of two measures; NaN is larger than all numbers. Order and repetition do not matter,
// so measures may be combined on the way.
float larger_scale(float left, float right);

// The scale for this step, predicted from the last step's largest measure. Returns zero (no
// prediction) if that was zero or not finite, or if the product overflows. Then only the exact way
// works.
float predict_scale(float last_largest, float headroom);

// Room for rows to grow between steps. A slightly larger value costs little: the rounding error
// grows with its square.
inline constexpr float kScaleHeadroom = 1.25F;

}  // namespace spillway::codec
