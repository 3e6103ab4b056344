// SPDX-License-Identifier: Apache-2.0
//
// Traces of training steps that nobody ran: a transformer of a given shape, on ranks in tensor,
// data, pipeline and expert parallel groups.
//
// Rank = tensor + T * (data + D * stage). Groups: tensor-parallel ranks stand side by side; experts
// are spread over runs of E data-parallel ranks; stages hand activations to the rank with the same
// place in the next one.
//
// A step of M micro-batches runs as 1F1B: a stage does as many forward passes ahead as there are
// stages behind it, then one backward for each forward. Of each layer and micro-batch:
//
//   forward   attention, all-reduce (T); feed-forward, all-reduce (T)
//             with experts: all-to-all (E), experts, all-to-all (E) for the second part
//   backward  the same the other way round, twice the time
//
// After a layer's last backward pass its gradients are all-reduced among the D data-parallel ranks,
// while backward goes on; the optimizer's step waits for all of them. With experts, only what is
// not theirs is reduced among all D; theirs among D / E.
//
// Sizes, with b the micro-batch, s the sequence, h the hidden width and v bytes a value:
//
//   all-reduce of tensor-parallel ranks     b s h v
//   activation between stages               b s h v / T
//   all-to-all of a rank                    b s h v k / T          k experts a token
//   gradients of a layer                    12 h^2 g / T           g bytes a gradient; 4 h^2 with
//                                           experts, and 8 h^2 for each of a rank's experts
//   time of a forward pass of a layer       (24 b s h^2 + 4 b s^2 h) / T / speed
//
// Every step runs after the one before. The same options give the same trace. Limits:
// kMaxTraceRanks, and kMaxGraphNodes for all ranks.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "emulate/trace/node.h"

namespace spillway::emulate {

inline constexpr std::uint32_t kMaxModelNumber = 1'000'000;  // of layers, ranks, tokens, ...

struct LlmStepOptions {
  std::uint32_t tensor = 1;
  std::uint32_t data = 1;
  std::uint32_t pipeline = 1;
  std::uint32_t expert = 1;  // divides data; 1: no experts

  std::uint32_t layers = 24;
  std::uint32_t hidden = 2048;
  std::uint32_t sequence = 2048;
  std::uint32_t vocabulary = 50'304;
  std::uint32_t micro_batch = 1;    // sequences
  std::uint32_t micro_batches = 1;  // of a step, at each data-parallel rank
  std::uint32_t experts = 8;        // of a layer, where expert > 1
  std::uint32_t experts_per_token = 2;
  std::uint32_t value_bytes = 2;
  std::uint32_t gradient_bytes = 2;
  double flops = 200e12;  // that a rank does in a second, as it is and not as advertised
  std::uint32_t steps = 1;

  std::uint32_t world() const { return tensor * data * pipeline; }
};

base::Status validate(const LlmStepOptions& options);

// All ranks, one after another, to the sink.
base::Status synthesize(const LlmStepOptions& options, NodeSink& sink);
base::Status synthesize_rank(const LlmStepOptions& options, std::uint32_t rank, NodeSink& sink);

}  // namespace spillway::emulate
