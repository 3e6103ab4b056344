// SPDX-License-Identifier: Apache-2.0
//
// What one command is run over to be compared, and how the command is told:
//
//   tcp                Gloo over TCP cubic, what nearly everybody runs
//   tcp-bbr            the same over TCP bbr
//   tcp-fp16           tcp with DDP's fp16 hook: 16 bits per value
//   tcp-powersgd       tcp with DDP's PowerSGD hook: low-rank gradients
//   spillway-exact     Spillway, nothing lost, 32 bits per value
//   spillway-16        Spillway, tolerant, 16 bits per value
//   spillway           Spillway, tolerant, as configured (5 bits unless SPILLWAY_PRECISION says)
//   spillway-over-tcp  as spillway, but its messages travel over TCP cubic connections
//
// Whatever the machine's default is, each has the congestion control that stands here. A transport
// has a control: the one that sends the same bits over plain TCP, by which split.h tells what fewer
// bits gain from what the transport gains. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spillway::compare {

struct Transport {
  std::string name;
  std::string title;    // for people: the name and, where there is TCP, which
  std::string backend;  // what torch.distributed calls it
  std::string tcp;      // congestion control of the hosts
  std::string hook;     // of torch, around DistributedDataParallel; empty: none
  std::string control;  // the name of the transport with the same bits over plain TCP
  std::string flat;     // the one that differs only in that no layer goes first; empty: none
  std::vector<std::string> variables;  // "KEY=value"
};

// "tcp,spillway": at least one, none twice. An error names those that are known.
base::Result<std::vector<Transport>> parse_transports(std::string_view names);

// `command` with {backend}, {transport} and {log} replaced wherever they stand in a word; all else
// is left alone.
std::vector<std::string> command_for(const std::vector<std::string>& command,
                                     const Transport& transport, const std::string& log);

// False: all runs have the same words.
bool tells_transports_apart(const std::vector<std::string>& command);

}  // namespace spillway::compare
