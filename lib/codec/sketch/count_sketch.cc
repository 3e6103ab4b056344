// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch/count_sketch.h"

#include <bit>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"

namespace spillway::codec::sketch {
namespace {

constexpr std::uint32_t kHashDomain = 0x534B4348U;  // "SKCH"

// Every bit of the result depends on every bit of the word (the finalizer of MurmurHash3).
constexpr std::uint64_t mixed(std::uint64_t word) {
  word = (word ^ word >> 33) * 0xFF51AFD7ED558CCDU;
  word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53U;
  return word ^ word >> 33;
}

// With fewer keys (1024 per lane), lanes would need more cells than elements.
constexpr std::size_t kLeastKeysForLanes = 64 * 1024;

// How close to the threshold a sketch can be filled varies with the square root of its keys. This
// adds that many, as a power of two. In the smallest sketches keys may also share all of their
// cells.
constexpr std::size_t slack_keys(std::size_t keys) {
  constexpr std::size_t kLeast = 16;
  return kLeast + (std::size_t{1} << (std::bit_width(keys) + 1) / 2);
}

}  // namespace

CellHash::CellHash(const SketchShape& shape, std::uint64_t seed)
    : shape_(shape), key_(base::derive_key(seed, {0, 0, 0, kHashDomain})) {}

SketchShape SketchShape::with_cells(Hashing hashing, std::size_t keys, unsigned cells_percent) {
  SketchShape shape{.hashing = hashing};
  const std::size_t cells = (keys * cells_percent + 99) / 100;
  const std::size_t cells_per_row = kHashes * shape.lanes();
  shape.rows_per_hash = static_cast<std::uint32_t>((cells + cells_per_row - 1) / cells_per_row);
  return shape;
}

SketchShape SketchShape::for_peeling(std::size_t keys, unsigned cells_percent) {
  if (keys == 0) {
    return {};
  }
  if (keys >= kLeastKeysForLanes) {
    return with_cells(Hashing::kLanes, keys + kWordBits * slack_keys(keys / kWordBits),
                      cells_percent);
  }
  return with_cells(Hashing::kElement, keys + slack_keys(keys), cells_percent);
}

Places CellHash::of_row(std::size_t index) const {
  SPILLWAY_DCHECK(shape_.rows_per_hash > 0);
  const std::size_t row = index >> shape_.lanes_log2();
  const std::uint64_t first = mixed(key_ + row * 0x9E3779B97F4A7C15U);
  const std::uint64_t second = mixed(first ^ key_);
  const std::array<std::uint64_t, kHashes> words{first & UINT32_MAX, first >> 32,
                                                 second & UINT32_MAX};
  Places places{};
  for (std::size_t hash = 0; hash < kHashes; ++hash) {
    const std::size_t begin = hash * shape_.rows_per_hash;
    places.cells[hash] = (begin + (words[hash] * shape_.rows_per_hash >> 32))
                         << shape_.lanes_log2();
    places.is_negative[hash] = (second >> (32 + hash) & 1U) != 0;
  }
  return places;
}

void add_to_sketch(const CellHash& hash, const Support& keys, std::span<const std::int32_t> values,
                   std::span<std::int32_t> cells) {
  SPILLWAY_CHECK(values.size() == keys.length() && cells.size() == hash.shape().cells());
  if (cells.empty()) {
    return;
  }
  hash.for_each(keys, [&](std::size_t index, const Places& places) {
    for (std::size_t i = 0; i < kHashes; ++i) {
      std::int32_t& cell = cells[places.cells[i]];
      cell = wrapping_add(cell, places.with_sign(i, values[index]));
    }
  });
}

// ------------------------------------------------------------------ peeling

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
                        "sketch: cells hold values of indices that no rank reported, because ranks "
                        "differ in prediction or seed: reset the predictions of all ranks"};
  }
  return peeler.take_left();
}

}  // namespace spillway::codec::sketch
