// SPDX-License-Identifier: Apache-2.0
//
// What a rank does in a trial of a lab (calibration.h): it asks as much of the fabric and of this
// machine's CPUs as the busiest job would. It sends full datagrams to the next rank at its link's
// rate. It answers every second one that it receives with a small one, like TCP's acknowledgements,
// and computes meanwhile.
#pragma once

#include <string>

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

base::Status run_load(const LoadOptions& options);

}  // namespace spillway::lab
