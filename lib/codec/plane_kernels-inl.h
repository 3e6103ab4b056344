// SPDX-License-Identifier: Apache-2.0
//
// Byte codes to bit planes and back: transposing bit matrices on vectors.
#include <cstdint>

#include "codec/kernels.h"

#if defined(SPILLWAY_CODEC_PLANE_KERNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPILLWAY_CODEC_PLANE_KERNELS_INL_H
#undef SPILLWAY_CODEC_PLANE_KERNELS_INL_H
#else
#define SPILLWAY_CODEC_PLANE_KERNELS_INL_H
#endif

#include "codec/vector_types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::codec {
namespace HWY_NAMESPACE {

// A block of 8 * stride coordinates is a bit matrix of eight rows with `stride` bytes each; its
// byte columns are independent. Eight vectors hold kBytes columns at a time. Three rounds transpose
// them by exchanging bits between vectors that are 4, 2 and 1 apart.
template <std::size_t kBytes>
using ColumnTag = hn::FixedTag<std::uint32_t, kBytes / 4>;
template <std::size_t kBytes>
using ColumnVector = hn::Vec<ColumnTag<kBytes>>;

constexpr std::size_t kFullStride = kPlaneBlock / 8;

template <int kShift, class Vector>
HWY_INLINE void exchange_bits(Vector& a, Vector& b, std::uint32_t mask) {
  const hn::DFromV<Vector> d;
  const Vector moved = hn::And(hn::Xor(hn::ShiftRight<kShift>(a), b), hn::Set(d, mask));
  b = hn::Xor(b, moved);
  a = hn::Xor(a, hn::ShiftLeft<kShift>(moved));
}

// Swaps v[j] bit k  <->  v[k] bit j in every byte.
template <class Vector>
HWY_INLINE void transpose_bits(Vector* v) {
  for (unsigned i = 0; i < 4; ++i) {
    exchange_bits<4>(v[i], v[i + 4], 0x0F0F0F0FU);
  }
  for (const unsigned i : {0U, 1U, 4U, 5U}) {
    exchange_bits<2>(v[i], v[i + 2], 0x33333333U);
  }
  for (const unsigned i : {0U, 2U, 4U, 6U}) {
    exchange_bits<1>(v[i], v[i + 1], 0x55555555U);
  }
}

template <std::size_t kBytes>
HWY_INLINE ColumnVector<kBytes> load_columns(const std::uint8_t* from) {
  const hn::FixedTag<std::uint8_t, kBytes> d8;
  return hn::BitCast(ColumnTag<kBytes>(), hn::LoadU(d8, from));
}

template <std::size_t kBytes>
HWY_INLINE void store_columns(ColumnVector<kBytes> v, std::uint8_t* to) {
  const hn::FixedTag<std::uint8_t, kBytes> d8;
  hn::StoreU(hn::BitCast(d8, v), d8, to);
}

template <std::size_t kBytes>
HWY_INLINE void split_columns(const std::uint8_t* codes, std::size_t stride, unsigned wanted,
                              std::uint8_t* planes, std::size_t plane_stride) {
  ColumnVector<kBytes> v[8];
  for (unsigned k = 0; k < 8; ++k) {
    v[k] = load_columns<kBytes>(codes + k * stride);
  }
  transpose_bits(v);
  for (unsigned plane = 0; plane < wanted; ++plane) {
    store_columns<kBytes>(v[7 - plane], planes + plane * plane_stride);
  }
}

template <std::size_t kBytes>
HWY_INLINE void merge_columns(const std::uint8_t* planes, std::size_t plane_stride,
                              unsigned present, std::uint8_t* codes, std::size_t stride) {
  ColumnVector<kBytes> v[8];
  for (unsigned plane = 0; plane < 8; ++plane) {
    v[7 - plane] = plane < present ? load_columns<kBytes>(planes + plane * plane_stride)
                                   : hn::Zero(ColumnTag<kBytes>());
  }
  transpose_bits(v);
  for (unsigned k = 0; k < 8; ++k) {
    store_columns<kBytes>(v[k], codes + k * stride);
  }
}

void split_planes(const std::uint8_t* codes, std::size_t count, unsigned wanted,
                  std::uint8_t* planes, std::size_t plane_stride) {
  const std::size_t whole = count / kPlaneBlock * kPlaneBlock;
  for (std::size_t block = 0; block < whole; block += kPlaneBlock) {
    split_columns<kFullStride>(codes + block, kFullStride, wanted, planes + block / 8,
                               plane_stride);
  }
  const std::size_t stride = (count - whole) / 8;  // 0, 4, 8 or 12
  codes += whole;
  planes += whole / 8;
  if ((stride & 8U) != 0) {
    split_columns<8>(codes, stride, wanted, planes, plane_stride);
  }
  if ((stride & 4U) != 0) {
    const std::size_t column = stride & 8U;
    split_columns<4>(codes + column, stride, wanted, planes + column, plane_stride);
  }
}

void merge_planes(const std::uint8_t* planes, std::size_t plane_stride, unsigned present,
                  std::size_t count, std::uint8_t* codes) {
  const std::size_t whole = count / kPlaneBlock * kPlaneBlock;
  for (std::size_t block = 0; block < whole; block += kPlaneBlock) {
    merge_columns<kFullStride>(planes + block / 8, plane_stride, present, codes + block,
                               kFullStride);
  }
  const std::size_t stride = (count - whole) / 8;  // 0, 4, 8 or 12
  codes += whole;
  planes += whole / 8;
  if ((stride & 8U) != 0) {
    merge_columns<8>(planes, plane_stride, present, codes, stride);
  }
  if ((stride & 4U) != 0) {
    const std::size_t column = stride & 8U;
    merge_columns<4>(planes + column, plane_stride, present, codes + column, stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::codec
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
