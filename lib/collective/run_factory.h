// SPDX-License-Identifier: Apache-2.0
//
// Makes the run that carries out an operation (operation_run.h): by a plan, or by the codec that
// the operation names. Owns what runs take over from earlier ones: scratch memory, paces, scales,
// code tables and residuals. Knows how large pieces are, and refuses what no run could carry.
//
// Sizes depend only on the operation and on what is the same at all ranks, so all cut alike. One
// thread, the engine's, except for admit().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "collective/engine_config.h"
#include "collective/entropy/code_cache.h"
#include "collective/entropy/entropy_piece.h"
#include "collective/exact/plan_run.h"
#include "collective/levels/levels_run.h"
#include "collective/operation_run.h"
#include "collective/summed/sum_piece.h"
#include "collective/tolerant/tolerant_run.h"
#include "collective/ways.h"

namespace spillway::collective {

class RunFactory {
 public:
  RunFactory(const EngineConfig& config, const ByteLayout& layout);
  ~RunFactory();
  RunFactory(const RunFactory&) = delete;
  RunFactory& operator=(const RunFactory&) = delete;

  // The configuration of runs whose messages travel by datagram. Outlives them.
  const RunConfig& config() const { return run_config_; }
  // With windows that fit the limits, and what is known of hosts.
  const PlanOptions& plan() const { return config_.plan; }
  // Checks whether this rank may call the operation. Any thread.
  base::Status admit(const Operation& operation) const;
  // `choice`: where the operation leaves it open, the same at all ranks; the stream only if there
  // is one to every peer (Endpoint::has_stream()). Sums that switches may add travel by datagram
  // all the same, and so do hellos, notes and receipts. `is_residual_free`: no other run uses the
  // tensor's residual. Fails if a device has no memory left.
  base::Result<std::unique_ptr<OperationRun>> make(const Operation& operation, std::uint64_t key,
                                                   const Ways::Choice& choice,
                                                   bool is_residual_free);
  std::size_t memory_bytes() const;

 private:
  // A tensor's residual, in the host's memory or in a device's, as the tensor.
  struct Residual {
    std::shared_ptr<float[]> values;
    std::size_t count = 0;
    bool is_on_device = false;
  };

  // The parts that runs inside hosts and between them share (levels/levels_run.h).
  struct Levels;

  bool goes_by_levels(const Operation& operation) const;
  base::Result<std::unique_ptr<OperationRun>> make_by_levels(const Operation& operation,
                                                             std::uint64_t key,
                                                             const Ways::Choice& choice,
                                                             bool is_residual_free);
  std::size_t tolerant_window() const;
  std::size_t tolerant_piece_bytes(const Operation& operation) const;
  ChunkOptions entropy_chunks(const Operation& operation) const;
  base::Status check_tolerant_size(const Operation& operation) const;
  base::Status check_entropy_size(const Operation& operation) const;

  base::Result<std::unique_ptr<OperationRun>> make_tolerant(const Operation& operation,
                                                            std::uint64_t key,
                                                            const Ways::Choice& choice,
                                                            std::span<float> residual);
  base::Result<std::unique_ptr<OperationRun>> make_summed(const Operation& operation,
                                                          std::uint64_t key,
                                                          std::span<float> residual);
  const RunConfig& config_on(transport::Carrier carrier) const {
    return carrier == transport::Carrier::kStream ? stream_config_ : run_config_;
  }
  base::Result<std::span<float>> residual_of(const Operation& operation);

  EngineConfig config_;
  RunConfig run_config_;
  RunConfig stream_config_;
  ScratchPool scratch_;
  PaceCache paces_;
  ScaleCache scale_cache_;
  CodeCache code_cache_;
  CoderPool coder_pool_;
  FloatCoderPool float_coders_;
  std::map<std::uint64_t, Residual> residuals_;  // by tensor
  std::unique_ptr<Levels> levels_;               // null without even hosts
};

}  // namespace spillway::collective
