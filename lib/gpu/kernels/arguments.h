// SPDX-License-Identifier: Apache-2.0
//
// The kernels' arguments: plain values with the same layout for the host's compiler and the runtime
// compiler. Pointers are device pointers. Both compilers read this file, so it includes nothing.
#pragma once

namespace spillway::gpu {

// Cells of the chi-square test (codec/row_codec.cc), with the outer ones merged.
inline constexpr unsigned kTestCells = 113;
// Magnitudes for prefixes of 1 to 8 planes: those for p planes begin at index 2^(p-1) - 1.
inline constexpr unsigned kPrefixMagnitudes = 255;

struct CodeTables {
  double cell_mass[kTestCells];
  double inverse_mass[kTestCells];
  double threshold;
  float magnitudes[2][kPrefixMagnitudes];  // indexed by codec::Estimate
};

// codec::RowHeader for one row.
struct RowCode {
  float scale;
  unsigned rotations;
};

// Element type of a tensor.
enum class Element : unsigned { kFloat32, kBfloat16, kFloat16 };

// Layout of a message's planes: packet p of the message begins at p * packet_stride. Its planes
// follow each other, as packetize::Packetizer writes them.
struct MessageShape {
  unsigned long long values;  // of the tensor
  unsigned row_log2;          // of all rows except the last
  unsigned planes;
  unsigned quanta;           // units of 32 coordinates per packet
  unsigned packets_per_row;  // in a row that is not the last
  unsigned packet_stride;    // bytes, a multiple of 4
};

// Rows of one length. A block processes a tile of 2^tile_log2 coordinates: one row or several.
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
  const float* factors;  // per row, multiplies its values; null: no scaling
  const CodeTables* tables;
  unsigned long long key;  // of the message's rotations
  MessageShape shape;
  RowRange range;
};

// The use of decoded values: they are written, or added to or subtracted from the old ones.
enum class Store : unsigned { kWrite, kAdd, kSubtract };

struct DecodeArguments {
  const unsigned char* payload;
  const unsigned short* received;  // bytes of planes, per packet; null: all
  const RowCode* rows;
  void* values;
  const CodeTables* tables;
  unsigned long long key;
  MessageShape shape;
  RowRange range;
  unsigned estimate;  // codec::Estimate
  Store store;
};

// One unnormalised rotation round alone.
struct RotateArguments {
  const float* from;
  float* to;
  unsigned long long key;
  RowRange range;
};

// Converts elements to floats and adds their residuals.
struct WidenArguments {
  const void* from;
  float* to;
  const float* residual;  // residuals; null: none
  unsigned long long count;
};

// codec::RotatedRow.
struct RowMeasure {
  float measure;
  int exponent;
};

// How a row of levels is encoded or decoded.
enum class LevelRowKind : unsigned {
  kValues,    // from its values
  kConstant,  // encode: all coordinates are zero; decode: `factor` everywhere
  kNothing,   // all levels are zero and carry no meaning
  kCleared,   // zeros, whatever `store` says
};

struct LevelRow {
  float factor;  // scales the coordinates of the rotated row, or of the way back
  int exponent;  // its values are divided by this power of two
  LevelRowKind kind;
};

// codec::LaneLayout; a chunk has kLaneWords words.
inline constexpr unsigned kLaneWords = 168;
struct Lanes {
  unsigned bits;
  unsigned lanes;
};

// The rows behind the levels, with the key of their rotations and draws.
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
  unsigned* clipped;       // the number of clipped values is added here
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

// A chunk of sums: its contributors times the range, and the reciprocal; 0 without contributors.
struct ChunkShare {
  unsigned middle;
  float unit;
};

struct SumArguments {
  LevelTensor tensor;  // where values are stored
  const unsigned long long* words;
  const ChunkShare* chunks;
  const LevelRow* rows;
  RowRange range;
  Lanes lanes;
  Store store;
};

// Sets all values to zero if one of them is not finite.
struct FiniteArguments {
  float* values;
  unsigned* found;  // non-zero: one is not finite; set by the first pass
  unsigned long long count;
};

}  // namespace spillway::gpu
