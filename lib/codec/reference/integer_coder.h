// SPDX-License-Identifier: Apache-2.0
//
// The rivals of the entropy coder (codec/entropy): lossless codes of quantised gradients behind one
// small interface, with Spillway's own among them.
//
// Names:
//   asc          rANS with the last step's table, which is not sent (codec/entropy)
//   one-table    the same with one table for everything learned so far
//   inline       the same with each message's own table, sent along
//   parametric   the same with a Laplace table from the last step's mean magnitude
//   adaptive     an arithmetic coder whose model learns from every symbol (adaptive_coder.h)
//   atalanta     sixteen ranges and raw offsets (atalanta.h)
//   dual-length  a short code for the eight commonest values, a long one for others
//   packed       blocks of 256 values, each in the width of the block's largest
//
// Only learn() changes a coder: it gets the values of the last step, the same at both ends. A coder
// encodes any values, whatever it has learned, and decode accepts any bytes. One thread at a time.
// Plain code; nothing on a data path uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace spillway::codec::reference {

class IntegerCoder {
 public:
  virtual ~IntegerCoder() = default;

  virtual std::string_view name() const = 0;
  // Coders without state across steps do not override this.
  virtual void learn(std::span<const std::int32_t> values);
  // At most 2^28 values.
  virtual std::vector<std::uint8_t> encode(std::span<const std::int32_t> values) = 0;
  // Decodes values.size() values.
  virtual base::Status decode(base::ByteView bytes, std::span<std::int32_t> values) = 0;
};

// All coders, in the order of the list above.
std::vector<std::unique_ptr<IntegerCoder>> all_integer_coders();

// The coder of that name; an unknown name gives an error that lists all names.
base::Result<std::unique_ptr<IntegerCoder>> make_integer_coder(std::string_view name);

}  // namespace spillway::codec::reference
