// SPDX-License-Identifier: Apache-2.0
//
// Who speaks, in everything that tells of a communicator; and paths in variables, in which what
// differs from process to process is left open:
//
//   %h host name, up to its first dot    %p process id    %r rank    %c communicator's name    %% %
//
// Anything else behind a % stays as it is. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway::runtime {

struct Identity {
  std::string communicator = "world";
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint32_t local_rank = 0;  // among the job's ranks on this machine
  std::uint32_t servers = 0;     // parameter servers, which `world` counts too
};

// Of this machine, up to its first dot.
std::string host_name();

// With %r and %c, where `identity` is known; without one they stay. A '/' in a name becomes '_'.
std::string expand_path(std::string_view pattern, const Identity* identity);

}  // namespace spillway::runtime
