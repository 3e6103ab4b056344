// SPDX-License-Identifier: Apache-2.0
//
// Sixteen bytes that tell one job's rendezvous from another's: random, or made of words that every
// rank of the job knows and another job's ranks do not. It keeps strangers apart who do not mean
// harm; it is no secret and proves nothing.
//
// Pure, but for random_nonce(), which asks the kernel. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace spillway::runtime {

using Nonce = std::array<std::uint8_t, 16>;

base::Result<Nonce> random_nonce();

// The same words in the same order give the same nonce on every machine; ("ab", "c") is not
// ("a", "bc").
Nonce nonce_of(std::span<const std::string> words);

// "3f09..." for names and messages.
std::string to_hex(const Nonce& nonce);

}  // namespace spillway::runtime
