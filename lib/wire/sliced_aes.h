// SPDX-License-Identifier: Apache-2.0
//
// AES-128 (FIPS 197) in portable code without tables, so that its time reveals nothing about key or
// data. Four blocks side by side are eight words, one for each bit of a byte. Used to expand keys,
// and on processors without AES instructions. Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace spillway::wire {

inline constexpr std::size_t kAesBlock = 16;  // bytes; also the size of an AES-128 key
inline constexpr std::size_t kAesRounds = 10;
inline constexpr std::size_t kAesSideBySide = 4;

using AesBlock = std::array<std::uint8_t, kAesBlock>;
// The key of the initial addition, then one per round.
using AesRounds = std::array<AesBlock, kAesRounds + 1>;
using AesBlocks = std::array<AesBlock, kAesSideBySide>;

// `key` points to 16 bytes.
void expand_aes(const std::uint8_t* key, AesRounds& rounds);

void encrypt_aes(const AesRounds& rounds, AesBlocks& blocks);

}  // namespace spillway::wire
