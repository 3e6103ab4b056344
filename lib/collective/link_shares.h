// SPDX-License-Identifier: Apache-2.0
//
// How much of a tensor each rank should own, by what the ranks' links can carry.
//
// Take a direct exchange among n ranks, and a rank that owns a share s. Each way its link carries
// the rest of the tensor once and its share n - 1 times: 1 + (n - 2) s tensors. A link that carries
// c takes (1 + (n - 2) s) / c for it, and everybody waits for the slowest. The time is least if all
// links take the same time T, except links so slow that T is not enough for the 1: they own
// nothing.
//
//   n = 4, c = 0.65, 1, 0.825, 1:   equal shares 2.31, best ones 6 / 3.475 = 1.73
//
// Shares move only if that gains something worth mentioning, and nearly equal ones become equal:
// measurements are never quite the same twice.
//
// Pure functions of whole numbers and + - * /: every rank computes the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/shards.h"

namespace spillway::collective {

// Capacity of each rank's link, in any unit. 0: the rank wants equal shares.
using Capacities = std::span<const std::uint64_t>;

// Larger capacities count as this.
inline constexpr std::uint64_t kMaxCapacity = std::uint64_t{1} << 40;

// Time for a tensor of one unit; all capacities above 0.
double exchange_time(const Shares& shares, Capacities capacities);

// The shares with the least time; all capacities above 0.
Shares best_shares(Capacities capacities);

// The shares to follow `current`: `current` itself, unless others are clearly better.
Shares next_shares(const Shares& current, Capacities capacities);

}  // namespace spillway::collective
