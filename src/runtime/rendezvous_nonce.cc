// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous_nonce.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/bytes.h"
#include "base/random.h"
#include "net/system_error.h"

namespace spillway::runtime {
namespace {

// Any two numbers: they make the halves of a nonce differ.
constexpr std::array<std::uint64_t, 2> kHalves = {0x53706c6c77617931, 0x53706c6c77617932};

// `key` with a word mixed in, twelve bytes and a position at a time; the length comes last, so that
// no word is the beginning of another.
std::uint64_t mix(std::uint64_t key, std::string_view word) {
  for (std::size_t at = 0; at < word.size(); at += 12) {
    std::array<char, 12> part{};
    std::copy_n(word.data() + at, std::min<std::size_t>(12, word.size() - at), part.data());
    key = base::derive_key(
        key, {base::load_le<std::uint32_t>(part.data()), base::load_le<std::uint32_t>(&part[4]),
              base::load_le<std::uint32_t>(&part[8]), static_cast<std::uint32_t>(at)});
  }
  return base::derive_key(key, {static_cast<std::uint32_t>(word.size()), 0, 0, ~0U});
}

}  // namespace

base::Result<Nonce> random_nonce() {
  Nonce nonce{};
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
    return net::system_error("get random bytes from the kernel", errno);
  }
  return nonce;
}

Nonce nonce_of(std::span<const std::string> words) {
  Nonce nonce{};
  for (std::size_t half = 0; half < kHalves.size(); ++half) {
    std::uint64_t key = kHalves[half];
    for (const std::string& word : words) {
      key = mix(key, word);
    }
    base::store_le(nonce.data() + 8 * half, key);
  }
  return nonce;
}

std::string to_hex(const Nonce& nonce) {
  return fmt::format("{:02x}", fmt::join(nonce, ""));
}

}  // namespace spillway::runtime
