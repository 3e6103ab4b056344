// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/bytes.h"

namespace spillway::runtime {
namespace {

constexpr std::uint16_t kFirstDerivedPort = 20000;
constexpr std::uint16_t kDerivedPortRange = 12768;

}  // namespace

std::string Place::to_string() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

base::Result<Place> parse_place(std::string_view text, std::string_view variable) {
  const base::Status wrong = base::invalid_argument(fmt::format(
      "{} is '{}': it must be a host and a port, such as 10.0.0.1:29517", variable, text));
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
