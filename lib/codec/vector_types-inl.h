// SPDX-License-Identifier: Apache-2.0
//
// Vector types of the SIMD kernels. Like every -inl.h file here, kernels_highway.cc includes it
// once per target, and nothing else does.
//
// Vectors are capped at 256 bits. Sixteen registers of eight floats hold a radix-8 butterfly, and
// wider ones gain nothing while a row streams from cache.
#include <cstddef>
#include <cstdint>

#if defined(SPILLWAY_CODEC_VECTOR_TYPES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_CODEC_VECTOR_TYPES_INL_H
#undef SPILLWAY_CODEC_VECTOR_TYPES_INL_H
#else
#define SPILLWAY_CODEC_VECTOR_TYPES_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace spillway::codec {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 8>;
using WordTag = hn::Rebind<std::uint32_t, FloatTag>;
using IntTag = hn::Rebind<std::int32_t, FloatTag>;
using FloatVector = hn::Vec<FloatTag>;
using WordVector = hn::Vec<WordTag>;

constexpr std::size_t kLanes = hn::MaxLanes(FloatTag());
static_assert(kLanes == 4 || kLanes == 8);

}  // namespace HWY_NAMESPACE
}  // namespace spillway::codec
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
