// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "base/bytes.h"
#include "base/environment.h"
#include "base/random.h"
#include "net/system_call.h"

namespace spillway::runtime {
namespace {

// Any two distinct numbers: they make the halves of a nonce differ.
constexpr std::array<std::uint64_t, 2> kHalves = {0x53706c6c77617931, 0x53706c6c77617932};

// Mixes a word into `key`, twelve bytes and their position at a time. The length comes last, so a
// word and its prefix mix differently.
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
  if (base::Status status = net::fill_random(nonce); !status.ok()) {
    return status;
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

namespace {

constexpr std::uint16_t kFirstDerivedPort = 20000;
constexpr std::uint16_t kDerivedPortRange = 12768;

}  // namespace

std::string Place::to_string() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

base::Result<Place> parse_place(std::string_view text) {
  const base::Status wrong = base::refusal(base::variable("SPILLWAY_COMM_ID"), text);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return wrong;
  }
  Place place;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, place.port);
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
  }
  if (error != std::errc() || stop != end || place.port == 0 ||
      (!bracketed && host.find(':') != std::string_view::npos)) {
    return wrong;
  }
  place.host = host;
  return place;
}

std::string RendezvousPoint::to_string() const {
  if (!local_name.empty()) {
    return fmt::format("the local socket @{}", local_name);
  }
  std::vector<std::string> texts;
  for (const Place& place : places) {
    texts.push_back(place.to_string());
  }
  return fmt::format("{}", fmt::join(texts, " or "));
}

std::vector<Place> derived_places(std::string_view host, std::span<const std::string> words) {
  const Nonce drawn = nonce_of(words);
  std::vector<Place> places;
  for (std::size_t i = 0; i < kDerivedPorts; ++i) {
    const std::uint32_t offset =
        base::load_le<std::uint32_t>(drawn.data() + 4 * i) % kDerivedPortRange;
    places.push_back({std::string(host), static_cast<std::uint16_t>(kFirstDerivedPort + offset)});
  }
  return places;
}

}  // namespace spillway::runtime
