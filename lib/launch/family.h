// SPDX-License-Identifier: Apache-2.0
//
// A launcher family: the variables by which one launcher tells a process its rank, and the meeting
// place derived from them. Each launcher has its own file.
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
#include "launch/rendezvous_point.h"

namespace spillway::runtime {

// A rank's position in its job.
struct Seat {
  std::uint16_t rank = 0;
  std::uint16_t world = 1;
  std::uint16_t local_rank = 0;   // among the ranks on this machine
  std::uint16_t local_world = 1;  // 1 if the launcher does not say
  bool is_local_known = false;    // true if the launcher says
};

struct SeatVariables {
  std::string_view rank{};
  std::string_view world{};
  std::string_view local_rank{};
  std::string_view local_world{};
};

// Checks that the variables are consistent. The two local ones may be missing.
base::Result<Seat> read_seat(const base::Environment& environment, const SeatVariables& variables);

struct LaunchFamily {
  std::string_view launcher{};
  std::string_view rank_variable{};  // selects the family if it is set
  std::string_view world_variable{};
  base::Result<Seat> (*seat)(const base::Environment& environment) = nullptr;
  // Words that all ranks of this run know, and ranks of another run (or of the same job before its
  // restart) do not. May be empty.
  std::vector<std::string> (*identity)(const base::Environment& environment) = nullptr;
  // The meeting place, without a nonce. Used if SPILLWAY_COMM_ID is unset and there is more than
  // one rank.
  base::Result<RendezvousPoint> (*meeting)(const base::Environment& environment,
                                           const Seat& seat) = nullptr;
};

// In order of precedence.
std::span<const LaunchFamily> launch_families();

extern const LaunchFamily kSpillwayFamily;
extern const LaunchFamily kTorchrunFamily;
extern const LaunchFamily kOpenMpiFamily;
extern const LaunchFamily kPmiFamily;
extern const LaunchFamily kSlurmFamily;

// "NAME=value" for each variable that is set.
std::vector<std::string> words_of(const base::Environment& environment,
                                  std::initializer_list<std::string_view> names);

// "...: set SPILLWAY_COMM_ID ...": for launchers that name no meeting place.
base::Status no_meeting_place(std::string_view why);

}  // namespace spillway::runtime
