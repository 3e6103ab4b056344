// SPDX-License-Identifier: Apache-2.0
//
// Packets per second through the sender's and the receiver's state machines on one core, without
// I/O: every data packet is taken from one endpoint and handed to the other, and so are the control
// packets between them. Measured once with records (the state machines alone), and once with
// datagrams, which adds writing and checking every byte of a packet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/progress.h"

namespace spillway::bench {

struct TransportSpeedOptions {
  std::uint32_t messages = 64;  // of 16,384 packets each
  int repetitions = 5;          // the best one counts
};

struct TransportSpeed {
  std::string what;  // "state machines", "datagrams, tags" or "datagrams, encrypted"
  double packets_per_second = 0.0;
  double control_share = 0.0;  // control packets per data packet
};

struct TransportSpeedResults {
  double memcpy_gigabytes_per_second = 0.0;  // for packet-sized pieces: the limit for datagrams
  std::vector<TransportSpeed> rows;
};

TransportSpeedResults measure_transport_speed(const TransportSpeedOptions& options,
                                              Progress& progress);
std::size_t transport_speed_steps();

}  // namespace spillway::bench
