// SPDX-License-Identifier: Apache-2.0
//
// Synthesizes traces of training steps: a transformer of a given shape, on ranks in tensor, data,
// pipeline and expert parallel groups.
//
// Rank = tensor + T * (data + D * stage). Groups: tensor-parallel ranks are adjacent. Experts are
// spread over runs of E data-parallel ranks. Each rank of a stage passes activations to the rank
// with the same place in the next stage.
//
// A step of M micro-batches runs as 1F1B: a stage runs one forward pass ahead for each stage behind
// it, then one backward pass per forward pass. For each layer and micro-batch:
//
//   forward   attention, all-reduce (T); feed-forward, all-reduce (T)
//             with experts: all-to-all (E), experts, all-to-all (E) for the second part
//   backward  the same in reverse, twice the time
//
// After a layer's last backward pass, its gradients are all-reduced among the D data-parallel ranks
// while the backward pass continues. The optimizer step waits for all of them. With experts, only
// the shared gradients are reduced among all D; the experts' among D / E.
//
// Sizes, with micro-batch b, sequence s, hidden width h and v bytes per value:
//
//   all-reduce of tensor-parallel ranks     b s h v
//   activation between stages               b s h v / T
//   all-to-all of a rank                    b s h v k / T          k experts per token
//   gradients of a layer                    12 h^2 g / T           g bytes per gradient; 4 h^2 with
//                                           experts, and 8 h^2 for each of a rank's experts
//   time of a forward pass of a layer       (24 b s h^2 + 4 b s^2 h) / T / speed
//
// Every step runs after the previous one. The same options give the same trace. Limits:
// kMaxTraceRanks, and kMaxGraphNodes for all ranks.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "emulate/trace/graph.h"

namespace spillway::emulate {

inline constexpr std::uint32_t kMaxModelNumber = 1'000'000;  // for layers, ranks, tokens, ...

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
  std::uint32_t micro_batches = 1;  // per step, at each data-parallel rank
  std::uint32_t experts = 8;        // per layer, if expert > 1
  std::uint32_t experts_per_token = 2;
  std::uint32_t value_bytes = 2;
  std::uint32_t gradient_bytes = 2;
  double flops = 200e12;  // per rank and second, as measured and not as advertised
  std::uint32_t steps = 1;

  std::uint32_t world() const { return tensor * data * pipeline; }
};

base::Status validate(const LlmStepOptions& options);

// Writes all ranks to the sink, one after another.
base::Status synthesize(const LlmStepOptions& options, NodeSink& sink);
base::Status synthesize_rank(const LlmStepOptions& options, std::uint32_t rank, NodeSink& sink);

}  // namespace spillway::emulate
