// SPDX-License-Identifier: Apache-2.0
//
// A count sketch of integers, and the exact recovery of values from it (peeling). Every value is
// added, with a sign, to three cells chosen by hashes of its index. Sketches with the same shape
// and seed add up cell by cell. So any all-reduce of 32-bit integers turns sketches of the parts
// into a sketch of the sum.
//
// Cells are integers modulo 2^32, and a wrapping sum loses nothing. Each value recovered from cells
// is one value of the sum modulo 2^32. Only these values must fit:
// that holds for numbers up to largest_number(ranks). For the same reason cells may travel modulo
// any 2^w that holds the sums of values.
//
// The three cells lie in three thirds of the sketch, so they always differ. There are two ways to
// hash:
//
//   kElement   every index on its own; for any number of keys
//   kLanes     64 neighbours share a hash, and each keeps its lane: neighbours stay neighbours, and
//              one hash serves 64. Every lane peels on its own with a 64th of the keys
//
// Hashes are integer products of index and seed: the same on every machine. An attacker who knows
// the seed can find keys that share their cells; that costs recovery, never more work. Pure; any
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "codec/sketch/support.h"

namespace spillway::codec::sketch {

inline constexpr std::size_t kHashes = 3;

enum class Hashing : std::uint8_t { kElement, kLanes };

// The largest magnitude that each of the contributors may add: sums must fit 32 bits.
constexpr std::int32_t largest_number(unsigned contributors) {
  return static_cast<std::int32_t>(std::int64_t{INT32_MAX} / contributors);
}

// Adds modulo 2^32, as hardware does.
constexpr std::int32_t wrapping_add(std::int32_t left, std::int32_t right) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(left) +
                                   static_cast<std::uint32_t>(right));
}
constexpr std::int32_t wrapping_negate(std::int32_t value) {
  return static_cast<std::int32_t>(-static_cast<std::uint32_t>(value));
}

struct SketchShape {
  Hashing hashing = Hashing::kElement;
  std::uint32_t rows_per_hash = 0;  // cells, or rows of 64 lanes; 0: a sketch without cells

  // At least cells_percent / 100 cells per key; no cells for no keys.
  static SketchShape with_cells(Hashing hashing, std::size_t keys, unsigned cells_percent);
  // Adds the slack that small sketches need to be peeled completely, and uses lanes if there are
  // enough keys. `cells_percent` must be at least 130.
  static SketchShape for_peeling(std::size_t keys, unsigned cells_percent);

  // A power of two, so that shifts work.
  unsigned lanes_log2() const { return hashing == Hashing::kLanes ? 6 : 0; }
  std::size_t lanes() const { return std::size_t{1} << lanes_log2(); }
  std::size_t cells() const { return kHashes * rows_per_hash * lanes(); }
  friend bool operator==(const SketchShape&, const SketchShape&) = default;
};

// The cells and signs of an index.
struct Places {
  std::array<std::size_t, kHashes> cells;
  std::array<bool, kHashes> is_negative;

  // A value's addend to a cell; applied again, it turns the cell back into the value.
  std::int32_t with_sign(std::size_t hash, std::int32_t value) const {
    return is_negative[hash] ? wrapping_negate(value) : value;
  }
};

class CellHash {
 public:
  // All ranks need the same seed, which should differ from step to step.
  CellHash(const SketchShape& shape, std::uint64_t seed);

  const SketchShape& shape() const { return shape_; }
  Places places(std::size_t index) const { return in_lane(of_row(index), index); }

  // Calls visit(index, places) for every index of the set, ascending. The sketch must have cells.
  template <typename Visit>
  void for_each(const Support& keys, Visit&& visit) const {
    std::size_t last_row = SIZE_MAX;
    Places row{};
    keys.for_each([&](std::size_t index) {
      if (const std::size_t its_row = index >> shape_.lanes_log2(); its_row != last_row) {
        row = of_row(index);
        last_row = its_row;
      }
      visit(index, in_lane(row, index));
    });
  }

 private:
  // The places of a row's first lane.
  Places of_row(std::size_t index) const;
  Places in_lane(Places row, std::size_t index) const {
    const std::size_t lane = index & (shape_.lanes() - 1);
    for (std::size_t& cell : row.cells) {
      cell += lane;
    }
    return row;
  }

  SketchShape shape_;
  std::uint64_t key_;
};

// Adds the values of `keys` to a sketch of hash.shape().cells() cells. Without cells there must be
// no keys.
void add_to_sketch(const CellHash& hash, const Support& keys, std::span<const std::int32_t> values,
                   std::span<std::int32_t> cells);

// ------------------------------------------------------------------ peeling
//
// Recovers values from a count sketch exactly. If only one key hashes to a cell, the cell is that
// key's value. Peeling takes it out of the key's other cells, which may leave a single key there,
// and so on.
//
// With at least 1.3 cells per key nearly every set of keys is recovered completely; below 1.222
// most of it is not (SketchShape::for_peeling()). Keys that remain are reported and have no
// value. Which keys remain depends only on hash, keys and erased cells, never on values or the
// order of work.
//
//   keys     every index with a value in any rank's part of the sketch; extra keys are harmless but
//            need cells
//   erased   cells that did not arrive; they are never peeled from
//
// Missing keys, or cells of other keys, are detected: a cell is then not zero after all its keys
// were taken out. That gives an error, not a value.
//
// The work is linear in keys and cells, whatever they hold.

// Writes the value of every recovered key into `values`, which has keys.length() places; other
// places stay unchanged. Returns the keys that were not recovered. `erased` is a set of cells, or
// has length 0 if all arrived. After an error `values` is undefined at keys.
base::Result<Support> peel(const CellHash& hash, const Support& keys,
                           std::span<const std::int32_t> cells, const Support& erased,
                           std::span<std::int32_t> values);

}  // namespace spillway::codec::sketch
