// SPDX-License-Identifier: Apache-2.0
//
// Recovers values from a count sketch exactly. If only one key hashes to a cell, the cell is that
// key's value. Peeling takes it out of the key's other cells, which may leave a single key there,
// and so on.
//
// With at least 1.3 cells per key nearly every set of keys is recovered completely; below 1.222
// most of it is not (count_sketch.h, for_peeling()). Keys that remain are reported and have no
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
// Linear in keys and cells, whatever they hold. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "codec/sketch/count_sketch.h"
#include "codec/sketch/support.h"

namespace spillway::codec::sketch {

// Writes the value of every recovered key into `values`, which has keys.length() places; other
// places stay unchanged. Returns the keys that were not recovered. `erased` is a set of cells, or
// has length 0 if all arrived. After an error `values` is undefined at keys.
base::Result<Support> peel(const CellHash& hash, const Support& keys,
                           std::span<const std::int32_t> cells, const Support& erased,
                           std::span<std::int32_t> values);

}  // namespace spillway::codec::sketch
