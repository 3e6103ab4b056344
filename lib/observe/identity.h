// SPDX-License-Identifier: Apache-2.0
//
// The communicator and rank that logs, dumps and metrics name; and the placeholders in paths, which
// differ from process to process:
//
//   %h host name, up to its first dot    %p process id    %r rank    %c communicator's name    %% %
//
// A % before anything else stays as it is. Plain values; any thread.
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

// Host name of this machine, up to its first dot.
std::string host_name();

// Without an `identity`, %r and %c stay as they are. A '/' in a communicator's name becomes '_'.
std::string expand_path(std::string_view pattern, const Identity* identity);

}  // namespace spillway::runtime
