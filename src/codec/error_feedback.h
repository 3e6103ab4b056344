// SPDX-License-Identifier: Apache-2.0
//
// Error feedback for biased compressors (Seide et al., Interspeech'14; Karimireddy et al.,
// ICML'19): what a step's compression left out is added to the next step's gradient. Per tensor,
//
//   input = gradient + residual;   output = compress(input);   residual = input - output
//
// so the sum of all outputs is the sum of all gradients less one residual: nothing is forgotten,
// only delayed. Works with anything that can compress and decompress: top-k, a minimum-error
// estimate, or a lossy link's own delivery.
//
// Where the new residual would hold a NaN or an infinity (a gradient that is not finite, a sum or a
// compressor that overflows), the tensor's whole residual becomes zero: one bad step is passed on
// to the compressor as it is, and is not remembered for ever.
//
// Memory: one float per coordinate of each tensor, kept until reset; no allocation after a tensor's
// first step. Limit: kMaxTensors tensors. Not thread-safe: one object per thread or a lock.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spillway::codec {

class ErrorFeedback {
 public:
  // More than any model has parameter tensors; a name made anew at each step shows up as an error
  // instead of eating the memory.
  static constexpr std::size_t kMaxTensors = 65536;

  // Compresses and decompresses: writes to `out` what the receiver will have of `in`.
  using Compressor = std::function<base::Status(std::span<const float> in, std::span<float> out)>;

  // One step of the tensor `id`: `out` becomes what the receiver has of gradient + residual. `out`
  // may be the gradient's own memory. A gradient of another length than at the step before is an
  // error that changes nothing: reset(id) first if it is meant. If `compress` fails, its error is
  // returned, `out` is as it left it, nothing counts as sent, and gradient + residual is the
  // residual of the next step.
  base::Status apply(std::string_view id, std::span<const float> gradient,
                     const Compressor& compress, std::span<float> out);

  // Forgets the tensor and frees its memory; nothing happens if it is not known.
  void reset(std::string_view id);

  // The Euclidean norm of what the tensor is owed; 0 if it is not known.
  double residual_norm(std::string_view id) const;

  std::size_t tensor_count() const { return residuals_.size(); }

 private:
  base::Result<std::vector<float>*> residual_of(std::string_view id, std::size_t length);

  std::map<std::string, std::vector<float>, std::less<>> residuals_;
};

}  // namespace spillway::codec
