// SPDX-License-Identifier: Apache-2.0
//
// One way of telling a process its rank: the variables of a launcher, and what follows from them
// about where to meet. Each launcher has a file of its own.
//
// Pure functions of the environment; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "runtime/launch/rendezvous_point.h"

namespace spillway::runtime {

// A rank's place in its job.
struct Seat {
  std::uint16_t rank = 0;
  std::uint16_t world = 1;
  std::uint16_t local_rank = 0;   // among the ranks on this machine
  std::uint16_t local_world = 1;  // 1 where the launcher does not say
  bool is_local_known = false;    // it says
};

struct SeatVariables {
  std::string_view rank{};
  std::string_view world{};
  std::string_view local_rank{};
  std::string_view local_world{};
};

// Checks that they fit together. The two local ones may be missing.
base::Result<Seat> read_seat(const base::Environment& environment, const SeatVariables& variables);

struct LaunchFamily {
  std::string_view launcher{};
  std::string_view rank_variable{};  // it speaks when this is set
  std::string_view world_variable{};
  base::Result<Seat> (*seat)(const base::Environment& environment) = nullptr;
  // Words that all ranks of this run know and those of another run, or of the same job before its
  // restart, do not. May be empty.
  std::vector<std::string> (*identity)(const base::Environment& environment) = nullptr;
  // Where to meet, without a nonce; asked when SPILLWAY_COMM_ID does not say and there is more than
  // one rank.
  base::Result<RendezvousPoint> (*meeting)(const base::Environment& environment,
                                           const Seat& seat) = nullptr;
};

// In the order in which they are asked.
std::span<const LaunchFamily> launch_families();

extern const LaunchFamily kSpillwayFamily;
extern const LaunchFamily kTorchrunFamily;
extern const LaunchFamily kOpenMpiFamily;
extern const LaunchFamily kPmiFamily;
extern const LaunchFamily kSlurmFamily;

// The values of those variables that are set, each with its name: "NAME=value".
std::vector<std::string> words_of(const base::Environment& environment,
                                  std::initializer_list<std::string_view> names);

// "...: set SPILLWAY_COMM_ID ...": for launchers that do not say where to meet.
base::Status no_meeting_place(std::string_view why);

}  // namespace spillway::runtime
