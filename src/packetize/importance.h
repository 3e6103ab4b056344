// SPDX-License-Identifier: Apache-2.0
//
// Which packets of a coded message a switch under pressure may drop first, by the energy of their
// rows.
//
// A row of which k of n packets are lost is made up for by the others, at an error of k / (n - k)
// times its energy. So the least is lost where the share that a row keeps follows the root of its
// energy: packets become expendable one at a time, always where the next costs least, and at most
// a third of a row's: with error feedback a row of which half is missing does not count. In a
// tensor whose rows are alike all rows get some; rows with little in them get most. Expendable
// packets have importance 0 to 3, the cheapest 0; of the others those of rows with more than the
// mean energy are repaired first.
//
// Estimates stay unbiased although loss now depends on the values: what came of a row is scaled by
// what came of that row, and a rotation does not know what will be lost. That needs something of
// every row. So a row with expendable packets and few others has one that must arrive, and rows of
// very few packets, which one loss may take away whole, are all alike whatever is in them.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "packetize/packet_plan.h"

namespace spillway::packetize {

// Rows of fewer packets have no expendable ones; nor may fewer than these be left of a row without
// one that must arrive. What as many packets that are not dropped first lose together is nothing.
inline constexpr std::size_t kSafePackets = 3;

// By packet. `row_scales`: the root mean square of each row, as in its header; what is not finite
// counts as more than any other. `expendable_ppm`: of all packets, those to drop first, rounded
// down; fewer where rows are short.
std::vector<std::uint8_t> importance_by_energy(const PacketPlan& plan,
                                               std::span<const float> row_scales,
                                               std::uint32_t expendable_ppm);

}  // namespace spillway::packetize
