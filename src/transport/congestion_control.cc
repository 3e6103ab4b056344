// SPDX-License-Identifier: Apache-2.0
#include "transport/congestion_control.h"

#include "transport/dctcp_control.h"
#include "transport/spillway_control.h"
#include "transport/timely_control.h"

namespace spillway::transport {

std::unique_ptr<CongestionControl> make_congestion_control(const CongestionConfig& config) {
  switch (config.kind) {
    case ControllerKind::kDctcp:
      return std::make_unique<DctcpControl>(config);
    case ControllerKind::kTimely:
      return std::make_unique<TimelyControl>(config);
    case ControllerKind::kSpillway:
      break;
  }
  return std::make_unique<SpillwayControl>(config);
}

}  // namespace spillway::transport
