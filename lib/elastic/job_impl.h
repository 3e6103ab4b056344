// SPDX-License-Identifier: Apache-2.0
//
// The implementation of Job (job.h): its state, and the thread that owns each part.
//
//   job.cc       founding and joining, on the application's thread, before the job's thread runs
//   job_run.cc   steps and changes, on the application's thread; and the job's thread: streams, the
//                member, events and answers
//
// The application's thread hands tasks to the job's thread, and waits under the mutex for results.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "elastic/job.h"
#include "elastic/job_query.h"
#include "elastic/membership/member.h"
#include "elastic/mesh.h"
#include "elastic/mesh_message.h"
#include "launch/secret.h"
#include "net/system_call.h"
#include "observe/metrics.h"
#include "wire/key.h"

namespace spillway::elastic {

// The founding of a job: the ranks of a communicator exchange the addresses of their streams and of
// their first epoch's data. From these, all of them derive the same first decision.
//
// Blocks for an all-gather over the communicator, at most its operation timeout. One thread.

struct Founder {
  MemberCard card{};
  membership::Handle handle{};
};

// The founders by rank, including this one.
base::Result<std::vector<Founder>> gather_founders(comm::Communicator& communicator,
                                                   const Founder& founder);

// The decision for epoch 1. It needs no vote, because all founders know the same. The last
// `standbys` founders become standbys.
membership::Decision founding_decision(const std::vector<Founder>& founders, std::size_t standbys);

inline std::int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class Job::Impl final : private MeshListener {
  using Decision = membership::Decision;
  using MemberId = membership::MemberId;

 public:
  explicit Impl(const JobConfig& config) : config_(config) {}
  ~Impl() override { stop(); }

  base::Status found(comm::Communicator& communicator);
  base::Status join(const Ticket& ticket);

  const Ticket& ticket() const { return ticket_; }
  std::optional<Change> first_change() const { return first_change_; }
  Verdict step(std::uint64_t step, base::Duration work);
  bool is_interrupted() const;
  void watch(std::weak_ptr<comm::Communicator> communicator);
  base::Result<std::optional<Change>> park(const membership::Position& position,
                                           base::Duration limit);
  base::Result<std::unique_ptr<comm::Communicator>> communicator(
      std::uint16_t channel, std::span<const std::uint16_t> ranks);
  void leave();
  std::optional<bool> finish(base::Duration limit);
  base::Result<std::string> ask(const std::string& question, base::Duration limit);

 private:
  using Slots = std::vector<std::unique_ptr<comm::Communicator::Slot>>;
  using Task = std::function<void()>;

  // Run on the application's thread.
  base::Status open_slots();
  base::Status open_mesh(base::ByteView secret, Standing standing);
  base::Status take_secret();
  base::Status publish_ticket() const;
  base::Status start(std::optional<membership::View> view);
  base::Status wait_for_streams(std::size_t others);
  base::Status wait_for_welcome(Ticket ticket);
  std::vector<net::SocketAddress> stream_addresses_of(const membership::View& view) const;
  std::optional<Change> take_decision(bool had_state);
  Change change_of(const Decision& decision) const;
  base::Status export_metrics(std::uint32_t rank);
  std::string metrics();
  // When training was told to stop for this decision; 0 if it was not.
  std::int64_t interrupted_before(const Decision& decision) const {
    return interrupt_ && interrupt_->epoch + 1 == decision.view.epoch ? interrupted_ns_ : 0;
  }
  bool applies(const membership::Interrupt& interrupt) const {
    return interrupt.epoch == epoch_ && !interrupt.at_step;
  }

  // Run on the job's thread.
  void run();
  void pump();
  void take(const membership::Event& event);
  void interrupt(const membership::Interrupt& interrupt);
  void count_change();
  JobReport report() const;
  void answer(const std::string& question, std::function<void(std::string)> reply);
  void stop();

  void on_connected(const MemberCard& member) override;
  void on_lost(MemberId member) override;
  void on_member_message(MemberId from, base::ByteView message) override;
  void on_welcome(const MemberWelcome& welcome) override;
  void on_refused(const std::string& why) override;
  bool is_member(MemberId member) const override {
    return member_ != nullptr && member_->view().has(member);
  }
  wire::RunKey key() const override { return key_; }
  void on_question(std::uint64_t asker, const std::string& question) override;

  JobConfig config_;
  launch::Secret secret_;
  Ticket ticket_{};
  MemberId id_ = 0;
  bool on_one_machine_ = false;
  base::MonotonicClock clock_;
  std::optional<Change> first_change_;

  // Used only by the application's thread.
  Slots next_slots_;  // their handle is next_handle_
  membership::Handle next_handle_;
  Slots slots_;  // of the present epoch, unused ones
  Decision present_;

  net::TaskQueue<Task> tasks_;
  std::thread thread_;
  std::unique_ptr<observe::MetricsExport> exported_;

  // Used only by the job's thread, once it runs.
  wire::RunKey key_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<membership::Member> member_;
  std::vector<std::function<void(std::string)>>
      waiting_callers_;  // callers that wait for their request
  JobReport report_;     // the fields counted here; report() adds the rest
  bool is_stopping_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t epoch_ = 0;  // last epoch that the application knows
  std::optional<membership::Interrupt> interrupt_;
  std::int64_t interrupted_ns_ = 0;
  std::int64_t parked_ns_ = 0;
  std::optional<Decision> decision_;                  // the newest
  std::vector<net::SocketAddress> ticket_addresses_;  // of some of its ranks, for the ticket
  std::int64_t decided_ns_ = 0;
  std::optional<std::string> dismissed_;
  std::set<MemberId> settled_peers_;  // connected or lost
  bool is_welcome_ = false;
  std::vector<std::weak_ptr<comm::Communicator>> watched_;
};

}  // namespace spillway::elastic
