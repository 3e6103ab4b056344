// SPDX-License-Identifier: Apache-2.0
#include "switch/fabric/mac_table.h"

#include <algorithm>
#include <bit>
#include <span>

namespace spillway::fabric {
namespace {

std::uint64_t number_of(const spillway_station& station) {
  return std::bit_cast<std::uint64_t>(station);
}

// The first of the entries where a station may be.
std::size_t place_of(std::uint64_t station, std::size_t ways) {
  // Addresses of one vendor differ only in their last bytes, which are the high bits here.
  const std::uint64_t hash = (station ^ (station >> 24)) * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::size_t>(hash >> 48) % (kMacTableSize / ways) * ways;
}

}  // namespace

void MacTable::learn(const spillway_station& station, scenario::HostId host) {
  const std::uint64_t number = number_of(station);
  const std::span<Entry> places = std::span(entries_).subspan(place_of(number, kWays), kWays);
  auto place = std::ranges::find(places, number, &Entry::station);
  if (place == places.end()) {
    place = std::ranges::min_element(places, {}, &Entry::learnt);
  }
  *place = {number, host, ++clock_};
}

std::optional<scenario::HostId> MacTable::find(const spillway_station& station) const {
  const std::uint64_t number = number_of(station);
  const auto places = std::span(entries_).subspan(place_of(number, kWays), kWays);
  const auto place = std::ranges::find(places, number, &Entry::station);
  return place == places.end() ? std::nullopt : std::optional(place->host);
}

}  // namespace spillway::fabric
