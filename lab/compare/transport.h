// SPDX-License-Identifier: Apache-2.0
//
// The transports over which a command can be compared, and how the command learns its transport:
//
//   tcp                Gloo over TCP cubic, what nearly everybody runs
//   tcp-bbr            the same over TCP bbr
//   tcp-fp16           tcp with DDP's fp16 hook: 16 bits per value
//   tcp-powersgd       tcp with DDP's PowerSGD hook: low-rank gradients
//   spillway-exact     Spillway, lossless, 32 bits per value
//   spillway-16        Spillway, tolerant, 16 bits per value
//   spillway           Spillway, tolerant, as configured (5 bits unless SPILLWAY_PRECISION says)
//   spillway-flat      as spillway, but no layer is sent before another
//   spillway-over-tcp  as spillway, but its messages travel over TCP cubic connections
//
// Each transport uses the congestion control given here, whatever the machine's default. Each has a
// control: the transport that sends the same bits over plain TCP; `tcp` as a control means the
// faster of tcp and tcp-bbr. With it, split.h separates the gain of fewer bits from that of the
// transport. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spillway::compare {

struct Transport {
  std::string name;
  std::string title;    // for people: the name, and which TCP if there is one
  std::string backend;  // its name in torch.distributed
  std::string tcp;      // congestion control of the hosts
  std::string hook;     // torch's, around DistributedDataParallel; empty: none
  std::string control;  // the name of the transport with the same bits over plain TCP
  std::string flat;     // the same, but no layer is sent before another; empty: none
  std::vector<std::string> variables;  // "KEY=value"
};

// "tcp,spillway": at least one, none twice. An error lists the known names.
base::Result<std::vector<Transport>> parse_transports(std::string_view names);

// Returns `command` with {backend}, {transport} and {log} replaced wherever they occur in a word.
std::vector<std::string> command_for(const std::vector<std::string>& command,
                                     const Transport& transport, const std::string& log);

// False if all runs have the same words.
bool tells_transports_apart(const std::vector<std::string>& command);

}  // namespace spillway::compare
