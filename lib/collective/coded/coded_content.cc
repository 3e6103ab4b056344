// SPDX-License-Identifier: Apache-2.0
#include "collective/coded/coded_content.h"

namespace spillway::collective {
namespace {

// With so many numbers to a symbol, making a table takes little of the time that coding takes.
constexpr std::size_t kNumbersPerSymbol = 32;

}  // namespace

codec::entropy::Alphabet alphabet_of(std::int32_t largest, std::uint16_t ranks, std::size_t share) {
  namespace entropy = codec::entropy;
  // Folded numbers, and the escape.
  const std::uint64_t symbols = 2 * static_cast<std::uint64_t>(largest) * ranks + 2;
  const bool is_direct =
      symbols <= 256 || (symbols <= entropy::kMaxSymbols && share / kNumbersPerSymbol >= symbols);
  return is_direct ? entropy::Alphabet::direct(static_cast<unsigned>(symbols)).value()
                   : entropy::Alphabet::ranges();
}

codec::entropy::Alphabet PlainContent::alphabet(std::uint8_t /*section*/,
                                                std::uint16_t ranks) const {
  return alphabet_of(tensor_.code.largest_number(), ranks,
                     tensor_.operation.count / tensor_.group.world);
}

void PlainContent::prepare(const BlockRun& blocks) {
  std::vector<float> scratch;
  for (std::size_t i = 0; i < blocks.count; ++i) {
    tensor_.prepare(blocks.block(i), scratch);
  }
}

void PlainContent::deliver(const BlockRun& blocks) {
  for (std::size_t i = 0; i < blocks.count; ++i) {
    tensor_.write(blocks.block(i), tensor_.numbers);
  }
}

}  // namespace spillway::collective
