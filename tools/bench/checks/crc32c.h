// SPDX-License-Identifier: Apache-2.0
//
// CRC32C of bytes, and of bytes that are being copied anyway: the baseline with which benchmarks
// compare the tags of packets.
//
// A CRC instruction takes two or three cycles, but one can start in every cycle. CRCs of several
// runs side by side therefore cost little more than one, and the copy fits into the gaps. Packets
// have such runs: their tail segments. Processors without the instruction use a table, with the
// same results.
//
// States are raw: the caller inverts them at both ends if it needs to. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "wire/packet_auth.h"

namespace spillway::bench {

std::uint32_t crc32c(std::uint32_t state, base::ByteView bytes);

// Computes the same while copying the bytes to `out`.
std::uint32_t copy_crc32c(std::uint32_t state, base::ByteView bytes, std::uint8_t* out);

// Copies one run per state and advances the states over them.
void copy_crc32c(const wire::StridedCopy& copy, std::span<std::uint32_t> states);

}  // namespace spillway::bench
