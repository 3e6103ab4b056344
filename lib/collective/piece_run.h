// SPDX-License-Identifier: Apache-2.0
//
// A coded all-reduce, cut into pieces: the mechanics that all of them share. Each piece goes
// through stages. A stage is either a calculation, which is a job, or messages. Which stages there
// are, and what follows what, is the codec's: tolerant/tolerant_run.h, summed/summed_run.h and
// entropy/entropy_run.h.
//
//   submit(index, work)     hands out a job: calculate() runs on any thread, then calculated() on
//                           the engine's
//   messages_               what the run expects and sends; count_sent() adds it to the report
//   withdraw()              ends all messages; jobs that are out go on, and nothing follows them
//
// A run is idle once no job is out and no message is in the endpoint. Jobs live as long as the run,
// because the pool may hold them until then.
//
// `Work` is the codec's enumeration of its calculations, of at most kWorks values. One thread, the
// engine's, except for calculate().
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "collective/operation_run.h"

namespace spillway::collective {

template <typename Work>
class PieceRun : public OperationRun {
 public:
  base::Status on_computed(std::uint32_t tag, RunContext& context) final {
    --jobs_out_;
    return is_withdrawn_ ? base::Status()
                         : calculated(tag / kWorks, static_cast<Work>(tag % kWorks), context);
  }
  bool is_idle() const override { return !has_jobs() && messages_.empty(); }
  void withdraw(RunContext& context) override {
    is_withdrawn_ = true;
    messages_.withdraw_if(context, [](const transport::MessageKey&) { return true; });
  }
  bool needs(std::uint16_t peer) const override {
    if (is_done()) {
      return false;
    }
    const std::vector<std::uint16_t> ranks = awaited();
    return std::find(ranks.begin(), ranks.end(), peer) != ranks.end();
  }

 protected:
  using OperationRun::OperationRun;

  // Runs on any thread; `index` is the piece's, or whatever else submit() was given.
  virtual base::Status calculate(std::uint32_t index, Work work) = 0;
  virtual base::Status calculated(std::uint32_t index, Work work, RunContext& context) = 0;

  void submit(std::uint32_t index, Work work, ComputeJob::Part part, RunContext& context) {
    ++jobs_out_;
    PieceJob& job = jobs_.emplace_back(*this, index, work);
    job.sleeps = operation().device != nullptr;
    job.part = part;
    hand_out(job, index * kWorks + static_cast<std::uint32_t>(work), context);
  }
  bool has_jobs() const { return jobs_out_ > 0; }
  bool is_withdrawn() const { return is_withdrawn_; }

  // `wire_bytes`: of the message's packets, each sent once.
  void count_sent(const transport::SendReport& report, std::uint64_t wire_bytes) {
    report_.packets_sent += report.transmitted;
    report_.packets_repeated += report.transmitted - std::min(report.transmitted, report.packets);
    report_.wire_bytes_sent += std::uint64_t{report.transmitted} * wire_bytes / report.packets;
  }

  MessageSet messages_;

 private:
  static constexpr std::uint32_t kWorks = 8;

  class PieceJob final : public ComputeJob {
   public:
    PieceJob(PieceRun& owner, std::uint32_t index, Work work)
        : owner_(owner), index_(index), work_(work) {}
    void run() override { failure = owner_.calculate(index_, work_); }

   private:
    PieceRun& owner_;
    std::uint32_t index_;
    Work work_;
  };

  std::deque<PieceJob> jobs_;
  std::uint32_t jobs_out_ = 0;
  bool is_withdrawn_ = false;
};

}  // namespace spillway::collective
