// SPDX-License-Identifier: Apache-2.0
//
// Who speaks, in everything that tells of a communicator. Plain value.
#pragma once

#include <cstdint>
#include <string>

namespace spillway::runtime {

struct Identity {
  std::string communicator = "world";
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint32_t local_rank = 0;  // among the job's ranks on this machine
  std::uint32_t servers = 0;     // parameter servers, which `world` counts too
};

}  // namespace spillway::runtime
