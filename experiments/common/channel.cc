// SPDX-License-Identifier: Apache-2.0
#include "common/channel.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "common/guarded.h"
#include "common/planes_channel.h"
#include "common/trimmable_channel.h"

namespace spillway::experiments {
namespace {

constexpr std::string_view kPlanes = "planes";

base::Status check_share(double share) {
  if (share >= 0.0 && share <= 1.0) {
    return {};
  }
  return base::invalid_argument("a share is from 0 to 1, not " + std::to_string(share));
}

template <typename Arrival>
void hand_over(const Arrival& arrival, float* estimate, experiment_delivery* delivery) {
  std::copy(arrival.values.begin(), arrival.values.end(), estimate);
  *delivery = arrival.delivery;
}

base::Status trim(std::string_view code, double share, std::uint64_t seed,
                  std::span<const float> gradient, float* estimate, experiment_delivery* delivery) {
  if (base::Status status = check_share(share); !status.ok()) {
    return status;
  }
  if (code == kPlanes) {
    const auto arrival = send_planes(gradient, {.harm = Harm::kTrim, .share = share, .seed = seed});
    if (!arrival.ok()) {
      return arrival.status();
    }
    hand_over(*arrival, estimate, delivery);
    return {};
  }
  const auto arrival = send_trimmable(code, share, seed, gradient);
  if (!arrival.ok()) {
    return arrival.status();
  }
  hand_over(*arrival, estimate, delivery);
  return {};
}

base::Status lose(const PlanesRoute& route, std::span<const float> gradient, float* estimate,
                  std::uint8_t* has_come, experiment_delivery* delivery) {
  if (base::Status status = check_share(route.share); !status.ok()) {
    return status;
  }
  const auto arrival = send_planes(gradient, route);
  if (!arrival.ok()) {
    return arrival.status();
  }
  hand_over(*arrival, estimate, delivery);
  std::copy(arrival->has_come.begin(), arrival->has_come.end(), has_come);
  return {};
}

}  // namespace
}  // namespace spillway::experiments

using spillway::codec::Estimate;
namespace experiments = spillway::experiments;

const char* experiment_trim(const char* code, double share, uint64_t seed, const float* gradient,
                            size_t length, float* estimate, experiment_delivery* delivery) {
  return experiments::guarded([&] {
    return experiments::trim(code, share, seed, {gradient, length}, estimate, delivery);
  });
}

const char* experiment_lose(double share, uint64_t seed, int rescaled, const float* gradient,
                            size_t length, float* estimate, uint8_t* has_come,
                            experiment_delivery* delivery) {
  return experiments::guarded([&] {
    const experiments::PlanesRoute route{
        .harm = experiments::Harm::kLoss,
        .share = share,
        .seed = seed,
        .estimate = rescaled != 0 ? Estimate::kUnbiased : Estimate::kMinimumError};
    return experiments::lose(route, {gradient, length}, estimate, has_come, delivery);
  });
}
