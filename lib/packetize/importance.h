// SPDX-License-Identifier: Apache-2.0
//
// Which packets of a coded message a congested switch may drop first, chosen by the energy of their
// rows.
//
// If k of a row's n packets are lost, the others make up for them at an error of k / (n - k) times
// its energy. The total error is least if the share that a row keeps follows the square root of its
// energy. So packets become expendable one at a time, each where it costs least. At most a third of
// a row's packets do, because with error feedback a row missing half of them does not count. If all
// rows are alike, each gets some; otherwise the rows with the least energy get most. Expendable
// packets have importance 0 to 3, the cheapest 0. Among the others, packets of rows with more than
// the mean energy are repaired first.
//
// Estimates stay unbiased although loss now depends on the values. Each row is rescaled by what
// arrived of that row, and its rotation is independent of what will be lost. That needs at least
// one packet of every row. So a row with expendable packets and few others has one packet that must
// arrive. Very short rows, which a few losses could erase, all get the same importance.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "packetize/packet_plan.h"

namespace spillway::packetize {

// Rows with fewer packets have no expendable ones. If a row keeps fewer than these, one of its
// packets must arrive. The chance of losing this many packets that are not dropped first is
// negligible.
inline constexpr std::size_t kSafePackets = 3;

// Returns one importance per packet. `row_scales` holds the root mean square of each row, as in its
// header; a value that is not finite ranks above all others. `expendable_ppm` is the share of all
// packets to drop first, rounded down; fewer are marked if rows are short.
std::vector<std::uint8_t> importance_by_energy(const PacketPlan& plan,
                                               std::span<const float> row_scales,
                                               std::uint32_t expendable_ppm);

}  // namespace spillway::packetize
