// SPDX-License-Identifier: Apache-2.0
#include "packetize/delivery_report.h"

#include <numeric>

namespace spillway::packetize {

std::size_t DeliveryReport::coordinates() const {
  return std::accumulate(coordinates_by_planes.begin(), coordinates_by_planes.end(),
                         std::size_t{0});
}

double DeliveryReport::lost_fraction() const {
  const std::size_t all = coordinates();
  return all == 0 ? 0.0 : static_cast<double>(coordinates_by_planes[0]) / static_cast<double>(all);
}

double DeliveryReport::trimmed_fraction(unsigned planes_sent) const {
  const std::size_t all = coordinates();
  if (all == 0) {
    return 0.0;
  }
  const std::size_t some =
      std::accumulate(coordinates_by_planes.begin() + 1,
                      coordinates_by_planes.begin() + planes_sent, std::size_t{0});
  return static_cast<double>(some) / static_cast<double>(all);
}

double DeliveryReport::mean_planes() const {
  const std::size_t all = coordinates();
  std::size_t planes_sum = 0;
  for (std::size_t planes = 0; planes < coordinates_by_planes.size(); ++planes) {
    planes_sum += planes * coordinates_by_planes[planes];
  }
  return all == 0 ? 0.0 : static_cast<double>(planes_sum) / static_cast<double>(all);
}

}  // namespace spillway::packetize
