// SPDX-License-Identifier: Apache-2.0
//
// Merges several jobs into one trace, to run them on one network at the same time. Each job keeps
// its own ranks, groups and messages:
//
//   ranks    kBehind: one job after the other. kAmong: rank 0 of each, then rank 1 of each, so that
//            a host with as many ranks as there are jobs has one of each
//   groups   "1/dp" is the second job's "dp", and "1/" all its ranks
//
// A sink between a reader and a writer. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "emulate/trace/node.h"

namespace spillway::emulate {

enum class MergeOrder : std::uint8_t { kBehind, kAmong };

// Counts the ranks of a trace while it is read.
class RankCounter final : public NodeSink {
 public:
  void set_default_rank(std::uint32_t rank) { default_rank_ = rank; }
  base::Status on_rank(const RankInfo& info) override;
  base::Status on_node(const Node&) override { return {}; }
  std::uint32_t ranks() const { return ranks_; }

 private:
  std::uint32_t default_rank_ = 0;
  std::uint32_t ranks_ = 0;
};

class JobMerger final : public NodeSink {
 public:
  // `ranks`: the size of each job. `out` must outlive the merger.
  JobMerger(const std::vector<std::uint32_t>& ranks, MergeOrder order, NodeSink& out);

  // The following nodes belong to this job; `rank` is used if the trace does not name one.
  void set_source(std::size_t job, std::uint32_t rank);
  base::Status on_rank(const RankInfo& info) override;
  base::Status on_node(const Node& node) override;

 private:
  base::Result<std::uint32_t> place_of(std::uint32_t rank) const;
  std::string name_of(const std::string& group) const;

  std::vector<std::vector<std::uint32_t>> places_;  // by job and rank
  std::uint32_t world_ = 0;
  NodeSink& out_;
  std::size_t job_ = 0;
  std::uint32_t default_rank_ = 0;
  Node node_;
};

}  // namespace spillway::emulate
