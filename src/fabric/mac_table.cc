// SPDX-License-Identifier: Apache-2.0
#include "fabric/mac_table.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace spillway::fabric {
namespace {

std::uint64_t number_of(base::ByteView address) {
  std::uint64_t number = 0;
  std::memcpy(&number, address.data(), kMacBytes);
  return number;
}

// The first of an address's places.
std::size_t place_of(std::uint64_t address, std::size_t ways) {
  // Addresses of one maker differ in their last bytes alone, which stand highest here.
  const std::uint64_t hash = (address ^ (address >> 24)) * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::size_t>(hash >> 48) % (kMacTableSize / ways) * ways;
}

}  // namespace

void MacTable::learn(base::ByteView address, scenario::HostId host) {
  const std::uint64_t number = number_of(address);
  const std::span<Entry> places = std::span(entries_).subspan(place_of(number, kWays), kWays);
  auto place = std::ranges::find(places, number, &Entry::address);
  if (place == places.end()) {
    place = std::ranges::min_element(places, {}, &Entry::learnt);
  }
  *place = {number, host, ++clock_};
}

std::optional<scenario::HostId> MacTable::find(base::ByteView address) const {
  const std::uint64_t number = number_of(address);
  const auto places = std::span(entries_).subspan(place_of(number, kWays), kWays);
  const auto place = std::ranges::find(places, number, &Entry::address);
  return place == places.end() ? std::nullopt : std::optional(place->host);
}

}  // namespace spillway::fabric
