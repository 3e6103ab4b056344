// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch/peeling.h"

#include <utility>
#include <vector>

#include "base/check.h"

namespace spillway::codec::sketch {
namespace {

// A cell's state: how many keys it still holds, and these keys folded into one number, which is the
// key itself once it is alone.
struct PeelCell {
  std::uint32_t keys = 0;
  std::int32_t sum = 0;
  std::uint64_t folded_keys = 0;
};

class Peeler {
 public:
  Peeler(const CellHash& hash, const Support& keys, std::span<const std::int32_t> cells,
         const Support& erased)
      : hash_(hash), erased_(erased), cells_(cells.size()), left_(keys) {
    for (std::size_t cell = 0; cell < cells.size(); ++cell) {
      cells_[cell].sum = cells[cell];
    }
    hash_.for_each(keys, [this](std::size_t index, const Places& places) {
      for (const std::size_t cell : places.cells) {
        ++cells_[cell].keys;
        cells_[cell].folded_keys ^= index;
      }
    });
  }

  void run(std::span<std::int32_t> values) {
    for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
      queue_if_single(cell);
    }
    while (!singles_.empty()) {
      const std::size_t cell = singles_.back();
      singles_.pop_back();
      if (cells_[cell].keys == 1) {  // no other cell of this key came first
        take_out(cell, values);
      }
    }
  }

  // Checks that cells whose keys were all taken out are zero.
  bool adds_up() const {
    for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
      if (cells_[cell].keys == 0 && cells_[cell].sum != 0 && !is_erased(cell)) {
        return false;
      }
    }
    return true;
  }

  Support&& take_left() { return std::move(left_); }

 private:
  bool is_erased(std::size_t cell) const { return erased_.length() > 0 && erased_.contains(cell); }

  void queue_if_single(std::size_t cell) {
    if (cells_[cell].keys == 1 && !is_erased(cell)) {
      singles_.push_back(cell);
    }
  }

  void take_out(std::size_t single, std::span<std::int32_t> values) {
    const auto index = static_cast<std::size_t>(cells_[single].folded_keys);
    const Places places = hash_.places(index);
    std::int32_t value = 0;
    for (std::size_t i = 0; i < kHashes; ++i) {
      if (places.cells[i] == single) {
        value = places.with_sign(i, cells_[single].sum);
      }
    }
    values[index] = value;
    left_.words()[index / kWordBits] &= ~(std::uint64_t{1} << (index % kWordBits));
    for (std::size_t i = 0; i < kHashes; ++i) {
      PeelCell& cell = cells_[places.cells[i]];
      --cell.keys;
      cell.folded_keys ^= index;
      cell.sum = wrapping_add(cell.sum, wrapping_negate(places.with_sign(i, value)));
      queue_if_single(places.cells[i]);
    }
  }

  const CellHash& hash_;
  const Support& erased_;
  std::vector<PeelCell> cells_;
  std::vector<std::size_t> singles_;  // may have lost their key since they were queued
  Support left_;
};

}  // namespace

base::Result<Support> peel(const CellHash& hash, const Support& keys,
                           std::span<const std::int32_t> cells, const Support& erased,
                           std::span<std::int32_t> values) {
  SPILLWAY_CHECK(cells.size() == hash.shape().cells() && values.size() == keys.length());
  SPILLWAY_CHECK(erased.length() == 0 || erased.length() == cells.size());
  if (cells.empty()) {
    return keys;
  }
  Peeler peeler(hash, keys, cells, erased);
  peeler.run(values);
  if (!peeler.adds_up()) {
    return base::Status{base::StatusCode::kCorrupt,
                        "sketch: cells hold values of indices that no rank named; ranks differ in "
                        "prediction or seed, so start their predictions again"};
  }
  return peeler.take_left();
}

}  // namespace spillway::codec::sketch
