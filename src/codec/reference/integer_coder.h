// SPDX-License-Identifier: Apache-2.0
//
// What the entropy coder (codec/entropy) is measured against: lossless codes of quantised gradients
// behind one small interface, Spillway's own among them.
//
// Names:
//   asc          rANS with the last step's table, which is not sent (codec/entropy)
//   one-table    the same with one table for all that was ever learned
//   inline       the same with each message's own table, sent along
//   parametric   the same with a Laplace table from the last step's mean magnitude
//   adaptive     an arithmetic coder whose model learns from every symbol (adaptive_coder.h)
//   atalanta     sixteen ranges and raw offsets (atalanta.h)
//   dual-length  a short code for the eight commonest values, a long one for others
//   packed       blocks of 256 values, as many bits each as the largest needs
//
// encode and decode do not change a coder, learn does: it is told what the last step sent, at both
// ends the same. A coder codes any values, whatever it has learned, and decode takes any bytes.
// Threads: one at a time. Plain code; nothing on a data path uses it.
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
  // Coders that keep nothing from step to step leave this as it is.
  virtual void learn(std::span<const std::int32_t> values);
  // At most 2^28 values.
  virtual std::vector<std::uint8_t> encode(std::span<const std::int32_t> values) = 0;
  // The values.size() values of an encoding.
  virtual base::Status decode(base::ByteView bytes, std::span<std::int32_t> values) = 0;
};

// Each coder once, in the order of the list above.
std::vector<std::unique_ptr<IntegerCoder>> all_integer_coders();

// The coder of that name; otherwise an error that lists the names there are.
base::Result<std::unique_ptr<IntegerCoder>> make_integer_coder(std::string_view name);

}  // namespace spillway::codec::reference
