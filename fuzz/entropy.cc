// SPDX-License-Identifier: Apache-2.0
//
// The entropy coder from both sides. The input's first byte says which:
//
//   bytes    as a block, a message, a packet or a table. Decoding gives a value or an error, the
//            same for every kernel table, and stays inside its buffers. Values decoded from a block
//            must survive encoding and decoding
//   values   must come back, in no more bytes than the bound, whatever the table
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "codec/entropy/message.h"

using namespace spillway;
using namespace spillway::codec::entropy;

namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

Alphabet alphabet_of(unsigned choice) {
  switch (choice % 4) {
    case 0:
      return Alphabet::bytes();
    case 1:
      return Alphabet::ranges();
    case 2:
      return *Alphabet::direct(600);
    default:
      return *Alphabet::direct(5);
  }
}

void encode_and_decode(const std::vector<std::int32_t>& values, const ProbabilityTable& table) {
  std::vector<std::uint8_t> bytes(max_block_bytes(values.size()));
  BlockEncoder encoder;
  Histogram sent(table.alphabet());
  const auto block =
      encoder.encode(std::span<const std::int32_t>(values), EncodeTable(table), bytes, &sent);
  require(block.ok() && block->bytes <= bytes.size());
  // A copy of exactly the block, so that ASan sees a read beyond it.
  const std::vector<std::uint8_t> exact(bytes.begin(),
                                        bytes.begin() + static_cast<long>(block->bytes));
  const DecodeTable decode_table(table);
  Histogram received(table.alphabet());
  std::vector<std::int32_t> decoded(values.size());
  BlockDecoder decoder;
  require(decoder.decode(exact, &decode_table, std::span<std::int32_t>(decoded), &received).ok());
  require(decoded == values && sent == received);
}

void decode_block(const std::vector<std::uint8_t>& bytes, std::size_t count,
                  const ProbabilityTable& table) {
  const DecodeTable decode_table(table);
  std::vector<std::int32_t> first(count);
  bool was_good = false;
  for (const RansKernels* kernels : available_rans_kernels()) {
    BlockDecoder decoder(*kernels);
    std::vector<std::int32_t> values(count);
    const bool is_good = decoder.decode(bytes, &decode_table, std::span<std::int32_t>(values)).ok();
    if (kernels == available_rans_kernels().front()) {
      first = values;
      was_good = is_good;
    }
    require(is_good == was_good && (!is_good || values == first));
  }
  if (was_good) {
    encode_and_decode(first, table);
  }
  BlockDecoder decoder;
  std::vector<std::int8_t> narrow(count);
  static_cast<void>(decoder.decode(bytes, &decode_table, std::span<std::int8_t>(narrow)).ok());
}

void decode_framed(const std::vector<std::uint8_t>& bytes, const ProbabilityTable& table) {
  const DecodeTable decode_table(table);
  BlockDecoder decoder;
  const auto header = read_message_header(bytes);
  if (header.ok() && header->values < 70'000) {
    std::vector<std::int32_t> values(header->values);
    static_cast<void>(decode_message(decoder, bytes, &decode_table, values).ok());
  }
  const auto count = packet_values(bytes);
  if (count.ok()) {
    std::vector<std::int32_t> values(*count);
    static_cast<void>(decode_packet(decoder, bytes, decode_table, values).ok());
  }
  base::ByteReader reader(bytes);
  const auto parsed = ProbabilityTable::parse(reader);
  if (parsed.ok()) {
    encode_and_decode({0, 1, -1, 300, INT32_MIN}, *parsed);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 5) {
    return 0;
  }
  const unsigned choice = data[0];
  const Alphabet alphabet = alphabet_of(choice / 4);
  const std::uint32_t scale = base::load_le<std::uint16_t>(data + 1);
  const ProbabilityTable table = (choice & 0x80U) != 0 ? ProbabilityTable::gauss(alphabet, scale)
                                                       : ProbabilityTable::laplace(alphabet, scale);
  // Mostly few values, for speed; sometimes enough for blocks with many states.
  const std::size_t drawn = base::load_le<std::uint16_t>(data + 3);
  const bool is_long = (choice & 0x70U) == 0x70U;
  const std::size_t count = is_long ? kManyValues + drawn % 256 : drawn % 2048;
  const std::vector<std::uint8_t> rest(data + 5, data + size);
  switch (choice % 4) {
    case 0:
      decode_block(rest, count, table);
      break;
    case 1:
      decode_framed(rest, table);
      break;
    default: {
      // The input repeats until there are enough values.
      std::vector<std::int32_t> values(rest.empty() ? 0 : count);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t at = i % rest.size();
        values[i] = choice % 4 == 2 || at + 4 > rest.size()
                        ? static_cast<std::int8_t>(rest[at])
                        : base::load_le<std::int32_t>(rest.data() + at);
      }
      encode_and_decode(values, table);
    }
  }
  return 0;
}
