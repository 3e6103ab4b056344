// SPDX-License-Identifier: Apache-2.0
#include "codec/error_feedback.h"

#include <algorithm>
#include <cmath>

namespace spillway::codec {
namespace {

void clear_unless_finite(std::span<float> residual) {
  const bool finite = std::all_of(residual.begin(), residual.end(),
                                  [](float value) { return std::isfinite(value); });
  if (!finite) {
    std::fill(residual.begin(), residual.end(), 0.0F);
  }
}

}  // namespace

base::Result<std::vector<float>*> ErrorFeedback::residual_of(std::string_view id,
                                                             std::size_t length) {
  auto found = residuals_.find(id);
  if (found == residuals_.end()) {
    if (residuals_.size() >= kMaxTensors) {
      return base::Status(base::StatusCode::kLimitExceeded,
                          "error feedback holds at most " + std::to_string(kMaxTensors) +
                              " tensors; reset those that are no longer sent");
    }
    found = residuals_.emplace(std::string(id), std::vector<float>(length, 0.0F)).first;
  }
  if (found->second.size() != length) {
    return base::invalid_argument("tensor \"" + std::string(id) + "\" had " +
                                  std::to_string(found->second.size()) + " coordinates and now " +
                                  std::to_string(length) + "; reset it first if that is meant");
  }
  return &found->second;
}

base::Status ErrorFeedback::apply(std::string_view id, std::span<const float> gradient,
                                  const Compressor& compress, std::span<float> out) {
  if (!compress) {
    return base::invalid_argument("error feedback needs a compressor");
  }
  if (out.size() != gradient.size()) {
    return base::invalid_argument("the output has room for " + std::to_string(out.size()) +
                                  " coordinates, the gradient has " +
                                  std::to_string(gradient.size()));
  }
  const base::Result<std::vector<float>*> found = residual_of(id, gradient.size());
  if (!found.ok()) {
    return found.status();
  }
  // The residual's memory holds the input while it is compressed, so that no copy is needed.
  std::vector<float>& residual = *found.value();
  std::transform(residual.begin(), residual.end(), gradient.begin(), residual.begin(),
                 std::plus<float>());
  base::Status status = compress(residual, out);
  if (status.ok()) {
    std::transform(residual.begin(), residual.end(), out.begin(), residual.begin(),
                   std::minus<float>());
  }
  clear_unless_finite(residual);
  return status;
}

void ErrorFeedback::reset(std::string_view id) {
  if (const auto found = residuals_.find(id); found != residuals_.end()) {
    residuals_.erase(found);
  }
}

double ErrorFeedback::residual_norm(std::string_view id) const {
  const auto found = residuals_.find(id);
  if (found == residuals_.end()) {
    return 0.0;
  }
  double squares = 0.0;
  for (const float value : found->second) {
    squares += static_cast<double>(value) * value;
  }
  return std::sqrt(squares);
}

}  // namespace spillway::codec
