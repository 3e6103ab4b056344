// SPDX-License-Identifier: Apache-2.0
//
// The one scale per row that all ranks code with: numbers can be added only if a unit is the same
// for everybody.
//
// Each rank tells one float per row, its measure: for level codes the root mean square of the row
// (rotate_for_levels), for block codes the largest magnitude (measure_block). Measures are zero or
// more, or NaN for a row that is not finite. The shared scale is the largest of them:
//
//   the exact way    measures travel ahead of the data, while rows are rotated
//   the faster way   predict_scale() of the last step's largest; measures travel beside the data,
//                    for the next step, and what was clipped is counted
//
// Special scales mean for all ranks alike: 0 a row of zeros, NaN a row of NaN. A prediction cannot
// say either; whoever used one decodes with NaN where a measure turned out to be NaN.
//
// Pure functions; any thread.
#pragma once

namespace spillway::codec {

// Zero or NaN.
bool is_special_scale(float scale);

// The larger of two measures; NaN is larger than all numbers. As for any maximum neither order nor
// repetition matters, so measures may be combined on the way.
float larger_scale(float left, float right);

// The scale for this step by the last step's largest measure. Zero, which is no prediction, where
// the last was zero or not finite, or the product does not fit: the exact way is then the only one.
float predict_scale(float last_largest, float headroom);

// Room for rows to grow between steps. A little too much costs little: the error of rounding grows
// with its square.
inline constexpr float kScaleHeadroom = 1.25F;

}  // namespace spillway::codec
