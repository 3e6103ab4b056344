// SPDX-License-Identifier: Apache-2.0
//
// The lossless coding of floats from both sides. The input's first byte says which:
//
//   code     decoding gives values or an error, the same with every kernel table
//   values   must come back, or have no room
#include <algorithm>
#include <vector>

#include "codec/entropy/float_coder.h"
#include "fuzzing.h"

using namespace spillway;
using namespace spillway::codec::entropy;
using fuzzing::require;

namespace {

using Bytes = std::vector<std::uint8_t>;

void decode(const Bytes& code, FloatWidth width, std::size_t count) {
  Bytes first(count * static_cast<std::size_t>(width));
  FloatDecoder decoder;
  const bool is_good = decoder.decode(code, width, first).ok();
  Bytes values(first.size());
  FloatDecoder scalar(scalar_rans_kernels());
  require(scalar.decode(code, width, values).ok() == is_good && (!is_good || values == first));
}

void encode_and_decode(const Bytes& values, FloatWidth width, std::size_t room) {
  Bytes code(room);
  FloatEncoder encoder;
  const std::optional<std::size_t> bytes = encoder.encode(values, width, code);
  if (!bytes) {
    return;
  }
  require(*bytes <= room);
  code.resize(*bytes);
  code.shrink_to_fit();  // so that ASan sees a read beyond it
  Bytes decoded(values.size());
  FloatDecoder decoder;
  require(decoder.decode(code, width, decoded).ok());
  require(decoded == values);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) {
    return 0;
  }
  const unsigned choice = data[0];
  const FloatWidth width = (choice & 1U) != 0 ? FloatWidth::kFour : FloatWidth::kTwo;
  const std::size_t number = base::load_le<std::uint16_t>(data + 1);
  const Bytes rest(data + 3, data + size);
  if ((choice & 2U) != 0) {
    // Mostly few values, for speed; sometimes enough for blocks with many states.
    decode(rest, width, (choice & 0x70U) == 0x70U ? kManyValues + number % 256 : number % 2048);
    return 0;
  }
  // The input repeats until there are enough values.
  Bytes values(rest.empty() ? 0 : number / 4 * 4);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = rest[i % rest.size()];
  }
  const bool has_room = (choice & 4U) != 0;
  encode_and_decode(values, width, has_room ? 2 * values.size() + 64 : values.size());
  return 0;
}
