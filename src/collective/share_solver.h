// SPDX-License-Identifier: Apache-2.0
//
// Which rank should own how much of a tensor, by what the ranks' links can carry.
//
// In a direct exchange among n ranks the link of one that owns a share s carries, each way, the
// rest of the tensor once and its share n - 1 times: 1 + (n - 2) s tensors. A link that carries c
// takes (1 + (n - 2) s) / c for it, and everybody waits for the slowest. That is least where all
// take the same time T, but for links so slow that T is not enough for the 1: those own nothing.
//
//   n = 4, c = 0.65, 1, 0.825, 1:   equal shares 2.31, best ones 6 / 3.475 = 1.73
//
// Shares move only where that gains something worth mentioning, and nearly equal ones are equal:
// measurements are never quite the same twice.
//
// Pure functions of whole numbers and + - * /: every rank computes the same.
#pragma once

#include <cstdint>
#include <span>

#include "collective/shards.h"

namespace spillway::collective {

// Of each rank's link, in any unit. 0: its rank wants equal shares.
using Capacities = std::span<const std::uint64_t>;

// Beyond this nobody tells one from another.
inline constexpr std::uint64_t kMaxCapacity = std::uint64_t{1} << 40;

// How long a tensor of one unit takes; all capacities above 0.
double exchange_time(const Shares& shares, Capacities capacities);

// The shares with the least time; all capacities above 0.
Shares best_shares(Capacities capacities);

// What should follow `current`: `current` itself, unless others are clearly better.
Shares next_shares(const Shares& current, Capacities capacities);

}  // namespace spillway::collective
