// SPDX-License-Identifier: Apache-2.0
//
// The kernels on Highway: the -inl.h files beside this one, compiled once per instruction set and
// chosen at run time.
//
// CPUs with SVE use the NEON table, because SVE vectors have no fixed size and cannot be held in
// arrays.
#include <cstdint>
#include <vector>

#include "codec/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/kernels_highway.cc"
// The fallback table never runs (see highway_kernels()); it only has to compile. Before g++ 12.3
// Highway would choose HWY_SCALAR, whose vectors have one lane.
#define HWY_BROKEN_EMU128 0
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3 | HWY_SSE4)
#include <hwy/foreach_target.h>  // NOLINT: Highway includes this file again for each target
// After foreach_target.h, which these depend on.
#include "codec/level_kernels-inl.h"
#include "codec/plane_kernels-inl.h"
#include "codec/rotation_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::codec {
namespace HWY_NAMESPACE {

constexpr const char* target_name() {
  switch (HWY_TARGET) {
    case HWY_NEON:
      return "neon";
    case HWY_AVX2:
      return "avx2";
    case HWY_AVX3:
    case HWY_AVX3_DL:
      return "avx512";
    default:
      return "simd";
  }
}

const Kernels* table() {
  static constexpr Kernels kTable = {
      .name = target_name(),
      .hadamard = hadamard,
      .rotate = rotate,
      .measure_and_rotate = measure_and_rotate,
      .unrotate = unrotate,
      .quantise = quantise,
      .refine = refine,
      .split_planes = split_planes,
      .merge_planes = merge_planes,
      .dequantise = dequantise,
      .dequantise_refined = dequantise_refined,
      .draw_words = draw_words,
      .round_levels = round_levels,
  };
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::codec {

HWY_EXPORT(table);

std::vector<const Kernels*> highway_kernels() {
  // Targets without fused multiply-add cannot round as the wire format requires. CPUs with no
  // better target run the scalar table.
  constexpr std::int64_t kFused = HWY_NEON | HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL;
  std::vector<const Kernels*> tables;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if ((target & kFused) != 0) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      tables.push_back(HWY_DYNAMIC_DISPATCH(table)());
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return tables;
}

}  // namespace spillway::codec
#endif
