// SPDX-License-Identifier: Apache-2.0
//
// Job: steps and changes, on the application's thread.
#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <utility>

#include "elastic/handle.h"
#include "elastic/job_impl.h"
#include "observe/log.h"

namespace spillway::runtime {
namespace {

using membership::Decision;

// The key of these members' communicator. Parts of a partition share channel and epoch, and their
// ranks all start at 0; only the members tell them apart.
base::Result<wire::RunKey> key_of_communicator(const wire::RunKey& job, const Decision& decision,
                                               std::uint16_t channel,
                                               std::span<const membership::MemberId> members) {
  wire::RunKey key;
  const base::Status status = wire::derive(job,
                                           {.use = wire::KeyUse::kCommunicator,
                                            .epoch = decision.view.epoch,
                                            .channel = channel,
                                            .nonce = decision.nonce,
                                            .members = members},
                                           key.bytes);
  return status.ok() ? base::Result<wire::RunKey>(key) : status;
}

}  // namespace

Verdict Job::Impl::step(std::uint64_t step, base::Duration work) {
  tasks_.push([this, epoch = epoch_, step, work] {
    report_.step = step;
    if (epoch == member_->view().epoch) {
      member_->on_step(step, work, clock_.now());
    }
  });
  const std::lock_guard lock(mutex_);
  const bool must_stop = dismissed_ || (interrupt_ && interrupt_->epoch == epoch_ &&
                                        (!interrupt_->at_step || step >= *interrupt_->at_step));
  return must_stop ? Verdict::kStop : Verdict::kGo;
}

bool Job::Impl::is_interrupted() const {
  const std::lock_guard lock(mutex_);
  return dismissed_.has_value() || (interrupt_ && applies(*interrupt_));
}

void Job::Impl::watch(std::weak_ptr<Communicator> communicator) {
  std::shared_ptr<Communicator> late;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(watched_, [](const auto& watched) { return watched.expired(); });
    watched_.push_back(communicator);
    if (interrupt_ && applies(*interrupt_)) {
      late = communicator.lock();
    }
  }
  if (late != nullptr) {
    static_cast<void>(late->abort("the job's members change"));
  }
}

base::Result<std::optional<Change>> Job::Impl::park(const membership::Position& position,
                                                    base::Duration limit) {
  if (base::Status status = open_seats(); !status.ok()) {
    return status;
  }
  const auto say = [&] {
    tasks_.push([this, epoch = epoch_, position, handle = next_handle_] {
      member_->on_parked(epoch, position, handle, clock_.now());
    });
  };
  say();
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(limit.count());
  std::unique_lock lock(mutex_);
  parked_ns_ = wall_clock_ns();
  while (true) {
    const bool is_news = changed_.wait_until(
        lock, end, [this] { return dismissed_ || (decision_ && decision_->view.epoch > epoch_); });
    if (!is_news) {
      return std::optional<Change>();
    }
    if (!decision_ || decision_->view.epoch <= epoch_) {
      return std::optional(Change{.outcome = membership::Outcome::kEnds,
                                  .epoch = epoch_,
                                  .rank = {},
                                  .world = 0,
                                  .step = 0,
                                  .sources = {},
                                  .why = *dismissed_,
                                  .is_done = membership::is_wanted_end(*dismissed_),
                                  .interrupted_ns = interrupted_ns_,
                                  .parked_ns = parked_ns_,
                                  .decided_ns = wall_clock_ns()});
    }
    if (std::optional<Change> change = take_decision(position.has_state)) {
      return change;
    }
    lock.unlock();
    say();  // this process stays a standby
    lock.lock();
  }
}

// Switches to the newest epoch. Returns nullopt if a standby stays one: the application need not
// know.
std::optional<Change> Job::Impl::take_decision(bool had_state) {
  present_ = *decision_;
  epoch_ = present_.view.epoch;
  const Change change = change_of(present_);
  if (change.rank) {
    seats_ = std::exchange(next_seats_, {});
  }
  if (const base::Status status = publish_ticket(); !status.ok()) {
    log_warn("{}", status.message());
  }
  const bool stays_standby = !had_state && !change.rank && present_.view.has(id_) &&
                             present_.outcome == membership::Outcome::kGoesOn;
  return stays_standby ? std::nullopt : std::optional(change);
}

Change Job::Impl::change_of(const Decision& decision) const {
  Change change{.outcome = decision.outcome,
                .epoch = decision.view.epoch,
                .rank = {},
                .world = static_cast<std::uint16_t>(decision.view.ranks.size()),
                .step = decision.step,
                .sources = decision.sources,
                .why = decision.why,
                .is_done = decision.outcome == membership::Outcome::kEnds &&
                           membership::is_wanted_end(decision.why),
                .interrupted_ns = interrupted_before(decision),
                .parked_ns = parked_ns_,
                .decided_ns = decided_ns_};
  if (const std::optional<std::uint32_t> rank = decision.view.rank_of(id_)) {
    change.rank = static_cast<std::uint16_t>(*rank);
  }
  return change;
}

base::Result<std::unique_ptr<Communicator>> Job::Impl::communicator(
    std::uint16_t channel, std::span<const std::uint16_t> ranks) {
  if (channel >= seats_.size() || seats_[channel] == nullptr) {
    return base::invalid_argument(fmt::format(
        "channel {} has no seat in this epoch: there are {} channels, each is used once an epoch, "
        "and standbys have none",
        channel, config_.channels));
  }
  std::vector<Blob> cards;
  std::vector<membership::MemberId> members;
  std::optional<std::uint16_t> own;
  for (const std::uint16_t rank : ranks) {
    if (rank >= present_.handles.size()) {
      return base::invalid_argument(
          fmt::format("there is no rank {} of {}", rank, present_.handles.size()));
    }
    if (std::find(members.begin(), members.end(), present_.view.ranks[rank]) != members.end()) {
      return base::invalid_argument(fmt::format("rank {} is named twice: name each once", rank));
    }
    const base::Result<std::vector<Blob>> all = parse_handle(present_.handles[rank]);
    if (!all.ok() || all->size() <= channel) {
      return base::Status(base::StatusCode::kMismatch,
                          fmt::format("rank {} has no channel {}: all members must ask for the "
                                      "same number of channels",
                                      rank, channel));
    }
    if (present_.view.ranks[rank] == id_) {
      own = static_cast<std::uint16_t>(cards.size());
    }
    cards.push_back((*all)[channel]);
    members.push_back(present_.view.ranks[rank]);
  }
  if (!own) {
    return base::invalid_argument("this process is none of these ranks");
  }
  wire::RunKey job_key;
  {
    const std::lock_guard lock(mutex_);
    job_key = key_;
  }
  const base::Result<wire::RunKey> key = key_of_communicator(job_key, present_, channel, members);
  if (!key.ok()) {
    return key.status();
  }
  return std::exchange(seats_[channel], nullptr)->take(*own, cards, *key);
}

void Job::Impl::leave() {
  std::promise<void> said;
  tasks_.push([&] {
    member_->leave(/*is_whole=*/false, clock_.now());
    pump();
    said.set_value();
  });
  said.get_future().wait();
}

std::optional<bool> Job::Impl::finish(base::Duration limit) {
  tasks_.push([this] { member_->leave(/*is_whole=*/true, clock_.now()); });
  std::unique_lock lock(mutex_);
  const bool is_known = changed_.wait_for(lock, std::chrono::nanoseconds(limit.count()), [this] {
    return dismissed_ || (interrupt_ && interrupt_->epoch == epoch_);
  });
  return is_known ? std::optional(dismissed_.has_value()) : std::nullopt;
}

}  // namespace spillway::runtime
