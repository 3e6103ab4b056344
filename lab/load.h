// SPDX-License-Identifier: Apache-2.0
//
// What a rank does in a trial of a lab (calibration.h): it asks as much of the fabric and of this
// machine's CPUs as the busiest job would. It sends full datagrams to the next rank at its link's
// rate. It answers every second one that it receives with a small one, like TCP's acknowledgements,
// and computes meanwhile. Finally it prints how much of the load it sent: a rank that got too
// little processor time offered less, and its trial says nothing about the full load.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/units.h"

namespace spillway::lab {

struct LoadOptions {
  std::string peers;  // as in SPILLWAY_PEERS; their ports are not used
  std::size_t rank = 0;
  base::BitRate rate;
  unsigned mtu = 1500;
  base::Duration length = base::milliseconds(500);
};

// Prints a line for least_share_sent().
base::Status run_load(const LoadOptions& options);

// The least share of its load that any of `ranks` ranks sent, according to what they printed. 0 if
// one of them printed nothing.
double least_share_sent(std::string_view printed, std::size_t ranks);

}  // namespace spillway::lab
