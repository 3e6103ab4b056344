// SPDX-License-Identifier: Apache-2.0
#include "launch/family.h"

#include <fmt/format.h>

#include <array>

#include "launch/launch.h"

namespace spillway::runtime {
namespace {

// A rank and the size it must be below.
struct Pair {
  std::uint16_t rank = 0;
  std::uint16_t size = 1;
};

base::Result<Pair> read_pair(const base::Environment& environment, std::string_view rank_variable,
                             std::string_view size_variable) {
  const base::Result<std::uint32_t> size = environment.number_of(size_variable, {1, kMaxRanks});
  if (!size.ok()) {
    return size.status();
  }
  const base::Result<std::uint32_t> rank = environment.number_of(rank_variable, {0, kMaxRanks - 1});
  if (!rank.ok()) {
    return rank.status();
  }
  if (*rank >= *size) {
    return base::invalid_argument(
        fmt::format("{} is {} and {} is {}: ranks are numbered from 0 to one below their number",
                    rank_variable, *rank, size_variable, *size));
  }
  return Pair{static_cast<std::uint16_t>(*rank), static_cast<std::uint16_t>(*size)};
}

base::Status missing_size(const SeatVariables& variables) {
  return base::invalid_argument(fmt::format(
      "{} is set but {} is not: set both, or SPILLWAY_RANK and SPILLWAY_WORLD_SIZE instead",
      variables.rank, variables.world));
}

}  // namespace

base::Result<Seat> read_seat(const base::Environment& environment, const SeatVariables& variables) {
  if (!environment.has(variables.world)) {
    return missing_size(variables);
  }
  const base::Result<Pair> global = read_pair(environment, variables.rank, variables.world);
  if (!global.ok()) {
    return global.status();
  }
  Seat seat{.rank = global->rank, .world = global->size};
  if (environment.has(variables.local_rank) && environment.has(variables.local_world)) {
    const base::Result<Pair> local =
        read_pair(environment, variables.local_rank, variables.local_world);
    if (!local.ok()) {
      return local.status();
    }
    seat.local_rank = local->rank;
    seat.local_world = local->size;
    seat.is_local_known = true;
  }
  if (seat.local_world > seat.world) {
    return base::invalid_argument(fmt::format("{} is {}, more than all ranks together: {} is {}",
                                              variables.local_world, seat.local_world,
                                              variables.world, seat.world));
  }
  return seat;
}

std::span<const LaunchFamily> launch_families() {
  static const std::array<LaunchFamily, 5> kFamilies = {kSpillwayFamily, kTorchrunFamily,
                                                        kOpenMpiFamily, kPmiFamily, kSlurmFamily};
  return kFamilies;
}

std::vector<std::string> words_of(const base::Environment& environment,
                                  std::initializer_list<std::string_view> names) {
  std::vector<std::string> words;
  for (const std::string_view name : names) {
    if (environment.has(name)) {
      words.push_back(fmt::format("{}={}", name, environment.get_or(name, "")));
    }
  }
  return words;
}

base::Status no_meeting_place(std::string_view why) {
  return base::invalid_argument(fmt::format(
      "{}: set SPILLWAY_COMM_ID=host:port for all ranks, an address of rank 0's host and a port "
      "that is free there",
      why));
}

}  // namespace spillway::runtime
