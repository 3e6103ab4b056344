// SPDX-License-Identifier: Apache-2.0
//
// All-reduces of one group on a simulated network, one after the other, by the shipped collectives:
// how long each takes, and by which plan. Hosts compute in no time, so that times are the network's
// and the protocol's alone.
//
// Pure functions of the setting, its seed included.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "collective/operation.h"
#include "collective/report.h"
#include "sim/scenario/scenario.h"

namespace spillway::sim {

struct AllReducesSetting {
  scenario::Scenario scenario{};     // links, switches, tenants and faults; its jobs are not used
  std::uint16_t ranks = 0;           // on the first hosts
  std::uint16_t ranks_per_host = 1;  // divides `ranks`; they share the host's link and memory
  std::size_t values = 0;            // a multiple of the number of ranks or not
  // float32, float16 or bfloat16; tolerant ones are of float32.
  collective::DataType type = collective::DataType::kFloat32;
  // The values, again and again, from another one on at each rank. Empty: Gaussian ones.
  std::span<const float> gradient{};
  collective::Algorithm algorithm = collective::Algorithm::kAutomatic;
  std::optional<collective::Tolerance> tolerance{};
  unsigned count = 1;  // all-reduces
};

struct AllReducesResult {
  std::vector<base::Duration> times;  // from the call at all ranks to the end at the last
  collective::Algorithm algorithm = collective::Algorithm::kAutomatic;  // of the last one
  collective::CodeDelivery code{};                                      // of all, at all ranks
  std::uint64_t wire_bytes = 0;    // of the last one, at all ranks: UDP payload
  std::uint64_t data_packets = 0;  // sent by all ranks, repeated ones included
  std::uint64_t repeated_packets = 0;
  std::uint64_t control_packets = 0;
  // Bytes of frames, one way, that the busiest host's link carried for one all-reduce of the second
  // half.
  double busiest_nic_bytes = 0.0;
  double coded_bits = 0.0;  // a value, of entropy-coded messages of the last one; 0: not coded
  base::BitRate rate{};     // of the slowest host's link

  base::Duration median() const;  // of the second half: by then trials have ended
};

// Fails if the network does not fit, an operation fails, or the scenario's limit is reached.
base::Result<AllReducesResult> run_all_reduces(const AllReducesSetting& setting);

}  // namespace spillway::sim
