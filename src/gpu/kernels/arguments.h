// SPDX-License-Identifier: Apache-2.0
//
// What the kernels are handed: plain values that the host's compiler and the run-time compiler lay
// out alike. Pointers are the device's. This file is read by both, so it includes nothing.
#pragma once

namespace spillway::gpu {

// A cell of the chi-square test (codec/row_encoder.cc), the outer ones taken together.
inline constexpr unsigned kTestCells = 113;
// Magnitudes of prefixes of 1 to 8 planes: those of p planes begin at 2^(p-1) - 1.
inline constexpr unsigned kPrefixMagnitudes = 255;

struct CodeTables {
  double cell_mass[kTestCells];
  double inverse_mass[kTestCells];
  double threshold;
  float magnitudes[2][kPrefixMagnitudes];  // by codec::Estimate
};

// codec::RowHeader, of one row.
struct RowCode {
  float scale;
  unsigned rotations;
};

// The elements of a tensor.
enum class Element : unsigned { kFloat32, kBfloat16, kFloat16 };

// How a message's planes lie: packet p of the message at p * packet_stride, its planes one behind
// the other, as packetize::Packetizer cuts them.
struct MessageShape {
  unsigned long long values;  // of the tensor
  unsigned row_log2;          // of all rows but the last
  unsigned planes;
  unsigned quanta;           // of 32 coordinates, in a packet
  unsigned packets_per_row;  // in one that is not the last
  unsigned packet_stride;    // bytes, a multiple of 4
};

// Rows of one length. A block takes a tile of 2^tile_log2 coordinates: one row, or several.
struct RowRange {
  unsigned first;
  unsigned count;
  unsigned log2_length;
  unsigned tile_log2;
};

struct EncodeArguments {
  const void* values;
  unsigned char* payload;
  RowCode* rows;
  const float* factors;  // by row, that values are multiplied by; none: by nothing
  const CodeTables* tables;
  unsigned long long key;  // of the message's rotations
  MessageShape shape;
  RowRange range;
};

// What becomes of decoded values: they are written, added to what is there, or taken off it.
enum class Store : unsigned { kWrite, kAdd, kSubtract };

struct DecodeArguments {
  const unsigned char* payload;
  const unsigned short* received;  // bytes of planes, by packet; none: all
  const RowCode* rows;
  void* values;
  const CodeTables* tables;
  unsigned long long key;
  MessageShape shape;
  RowRange range;
  unsigned estimate;  // codec::Estimate
  Store store;
};

// The rotation by itself: one round, unnormalised.
struct RotateArguments {
  const float* from;
  float* to;
  unsigned long long key;
  RowRange range;
};

// A tensor's elements as floats, with what they are owed.
struct WidenArguments {
  const void* from;
  float* to;
  const float* owed;  // none: nothing
  unsigned long long count;
};

// codec::RotatedRow.
struct RowMeasure {
  float measure;
  int exponent;
};

// What a row of levels is made of, or becomes.
enum class LevelRowKind : unsigned {
  kValues,     // of its values
  kAlike,      // of coordinates that are zero; or, decoded, its factor throughout
  kNothing,    // levels of zero, which mean nothing
  kForgotten,  // zeros, whatever is done with decoded values
};

struct LevelRow {
  float factor;  // of coordinates: of a rotated row, or on the way back
  int exponent;  // its values are divided by this power of two
  LevelRowKind kind;
};

// codec::LaneLayout; a chunk has kLaneWords words.
inline constexpr unsigned kLaneWords = 168;
struct Lanes {
  unsigned bits;
  unsigned lanes;
};

// The rows that levels are of, with the key of their rotations and draws.
struct LevelTensor {
  const void* values;
  unsigned long long count;
  unsigned long long key;
  unsigned row_log2;
};

struct MeasureArguments {
  LevelTensor tensor;
  RowMeasure* rows;
  RowRange range;
};

struct RoundArguments {
  LevelTensor tensor;
  const LevelRow* rows;
  unsigned short* levels;  // of all coordinates, row by row
  unsigned* clipped;       // how many is added to it
  RowRange range;
  unsigned rank;
  float range_of_levels;
};

struct PackArguments {
  const unsigned short* levels;
  unsigned long long* words;
  unsigned long long levels_count;
  unsigned long long words_count;
  Lanes lanes;
};

// Of a chunk of sums: its contributors times the range, and one over it; 0 of none.
struct ChunkShare {
  unsigned middle;
  float unit;
};

struct SumArguments {
  LevelTensor tensor;  // where values go
  const unsigned long long* words;
  const ChunkShare* chunks;
  const LevelRow* rows;
  RowRange range;
  Lanes lanes;
  Store store;
};

// Values that are zero as soon as one of them is not finite.
struct FiniteArguments {
  float* values;
  unsigned* found;  // not 0: one is not; in the first pass that is found out
  unsigned long long count;
};

}  // namespace spillway::gpu
