// SPDX-License-Identifier: Apache-2.0
//
// AES-128 (FIPS 197) in plain code without tables, so that its time says nothing about key or data:
// four blocks side by side as eight words, one for each bit of a byte. For the expansion of keys,
// and for processors without instructions for AES. Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace spillway::wire {

inline constexpr std::size_t kAesBlock = 16;  // bytes; a key of AES-128 has as many
inline constexpr std::size_t kAesRounds = 10;
inline constexpr std::size_t kAesSideBySide = 4;

using AesBlock = std::array<std::uint8_t, kAesBlock>;
// The key of each round, that of the first addition before them.
using AesRounds = std::array<AesBlock, kAesRounds + 1>;
using AesBlocks = std::array<AesBlock, kAesSideBySide>;

// From 16 bytes.
void expand_aes(const std::uint8_t* key, AesRounds& rounds);

void encrypt_aes(const AesRounds& rounds, AesBlocks& blocks);

}  // namespace spillway::wire
