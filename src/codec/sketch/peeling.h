// SPDX-License-Identifier: Apache-2.0
//
// Values out of a count sketch, exactly: where only one of the keys hashes to a cell, the cell is
// that key's value. It is taken out of the key's other cells, which may leave one key alone there,
// and so on.
//
// With 1.3 cells for a key or more nearly every set of keys comes out whole; below 1.222 most of
// it stays (count_sketch.h, for_peeling()). What stays is reported and has no value. Which keys
// stay follows from hash, keys and erased cells alone, never from values or the order of work.
//
//   keys     every index that any part of the sketch has a value at, from all ranks; more do no
//            harm but need cells
//   erased   cells that did not arrive: never peeled from
//
// Keys that are missing from `keys`, or cells of other keys, show: a cell that all keys were taken
// out of is not zero then. That is an error, not a value.
//
// Linear in keys and cells, whatever they hold. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "codec/sketch/count_sketch.h"
#include "codec/sketch/support.h"

namespace spillway::codec::sketch {

// Writes the value of every key that comes out into `values`, which has keys.length() places; other
// places are not touched. Returns the keys that do not. `erased` is a set of cells, or of length 0
// if all are there. An error leaves `values` undefined at keys.
base::Result<Support> peel(const CellHash& hash, const Support& keys,
                           std::span<const std::int32_t> cells, const Support& erased,
                           std::span<std::int32_t> values);

}  // namespace spillway::codec::sketch
