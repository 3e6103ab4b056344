// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <utility>

#include "elastic/job_impl.h"
#include "elastic/job_query.h"
#include "elastic/mesh_message.h"
#include "observe/log.h"

namespace spillway::elastic {

// Job: steps and changes, on the application's thread.

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

void Job::Impl::watch(std::weak_ptr<comm::Communicator> communicator) {
  std::shared_ptr<comm::Communicator> late;
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
  if (base::Status status = open_slots(); !status.ok()) {
    return status;
  }
  const auto send = [&] {
    tasks_.push([this, epoch = epoch_, position, handle = next_handle_] {
      member_->on_parked(epoch, position, handle, clock_.now());
    });
  };
  send();
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
    send();  // this process stays a standby
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
    slots_ = std::exchange(next_slots_, {});
  }
  if (const base::Status status = publish_ticket(); !status.ok()) {
    observe::log_warn("{}", status.message());
  }
  const bool stays_standby = !had_state && !change.rank && present_.view.has(id_) &&
                             present_.outcome == membership::Outcome::kContinues;
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

base::Result<std::unique_ptr<comm::Communicator>> Job::Impl::communicator(
    std::uint16_t channel, std::span<const std::uint16_t> ranks) {
  if (channel >= slots_.size() || slots_[channel] == nullptr) {
    return base::invalid_argument(fmt::format(
        "channel {} has no slot in this epoch: there are {} channels, each is used once an epoch, "
        "and standbys have none",
        channel, config_.channels));
  }
  std::vector<comm::Blob> cards;
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
    const base::Result<std::vector<comm::Blob>> all = parse_handle(present_.handles[rank]);
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
  return std::exchange(slots_[channel], nullptr)->take(*own, cards, *key);
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

// Job: its own thread, and the questions that others ask.

namespace {

using membership::MemberId;

// How long an export waits for the metrics' text.
constexpr base::Duration kMetricsPatience = base::seconds(1);
// How long a leaving process waits for its last messages to be read.
constexpr base::Duration kFlushTime = base::milliseconds(100);

}  // namespace

void Job::Impl::run() {
  while (!is_stopping_) {
    mesh_->turn(member_->next_timeout(), tasks_.fd());
    for (const Task& task : tasks_.take()) {
      task();
    }
    if (const base::Instant now = clock_.now(); member_->next_timeout() <= now) {
      member_->on_timeout(now);
    }
    pump();
  }
}

// Delivers the member's messages and events, to other members and to the application.
void Job::Impl::pump() {
  while (const std::optional<membership::Outgoing> outgoing = member_->poll_transmit()) {
    mesh_->send(outgoing->to, outgoing->message);
  }
  while (const std::optional<membership::Event> event = member_->poll_event()) {
    take(*event);
  }
}

void Job::Impl::take(const membership::Event& event) {
  if (const auto* stop = std::get_if<membership::Interrupt>(&event)) {
    interrupt(*stop);
  } else if (const auto* decided = std::get_if<membership::Decided>(&event)) {
    observe::log_info(observe::LogSubsystem::kInit, "epoch {} with {} ranks: {}",
                      decided->decision.view.epoch, decided->decision.view.ranks.size(),
                      decided->decision.why);
    const std::lock_guard lock(mutex_);
    decision_ = decided->decision;
    ticket_addresses_ = stream_addresses_of(decision_->view);
    decided_ns_ = wall_clock_ns();
    count_change();
  } else if (const auto* dismissed = std::get_if<membership::Dismissed>(&event)) {
    observe::log_info(observe::LogSubsystem::kInit, "no longer a member: {}", dismissed->why);
    const std::lock_guard lock(mutex_);
    dismissed_ = dismissed->why;
  } else if (const auto* straggler = std::get_if<membership::StragglerFound>(&event)) {
    report_.stragglers.push_back(fmt::format("rank {} takes {:.1f} times as long as the median",
                                             straggler->rank, straggler->times_median));
    observe::log_warn("{}", report_.stragglers.back());
  } else if (const auto* answered = std::get_if<membership::Answered>(&event)) {
    for (const auto& reply : std::exchange(waiting_callers_, {})) {
      reply((answered->ok ? "done: " : "refused: ") + answered->text);
    }
  }
  changed_.notify_all();
}

// Called under the mutex, after a decision.
void Job::Impl::count_change() {
  report_.stragglers.clear();
  ++report_.changes;
  if (const std::int64_t told_ns = interrupted_before(*decision_);
      told_ns != 0 && parked_ns_ >= told_ns) {
    report_.stopping += base::nanoseconds(parked_ns_ - told_ns);
    report_.deciding += base::nanoseconds(decided_ns_ - parked_ns_);
  }
}

void Job::Impl::interrupt(const membership::Interrupt& asked) {
  report_.interruptions += asked.at_step ? 0 : 1;
  std::vector<std::shared_ptr<comm::Communicator>> ended;
  {
    const std::lock_guard lock(mutex_);
    interrupt_ = asked;
    interrupted_ns_ = wall_clock_ns();
    if (!asked.at_step) {
      for (const std::weak_ptr<comm::Communicator>& watched : watched_) {
        ended.push_back(watched.lock());
      }
    }
  }
  for (const std::shared_ptr<comm::Communicator>& communicator : ended) {
    if (communicator != nullptr) {
      static_cast<void>(communicator->abort(asked.why));  // fails only in a child of fork()
    }
  }
}

void Job::Impl::stop() {
  if (!thread_.joinable()) {
    return;
  }
  exported_.reset();  // first: its source needs the thread
  tasks_.push([this] {
    pump();
    for (const base::Instant end = clock_.now() + kFlushTime; clock_.now() < end;) {
      mesh_->turn(end, tasks_.fd());
      static_cast<void>(tasks_.take());
    }
    is_stopping_ = true;
  });
  thread_.join();
}

void Job::Impl::on_connected(const MemberCard& member) {
  member_->on_connected(member.id, clock_.now());
  const std::lock_guard lock(mutex_);
  settled_peers_.insert(member.id);
  changed_.notify_all();
}

void Job::Impl::on_lost(MemberId member) {
  member_->on_lost(member, membership::LossCause::kClosed, clock_.now());
  const std::lock_guard lock(mutex_);
  settled_peers_.insert(member);
  changed_.notify_all();
}

void Job::Impl::on_member_message(MemberId from, base::ByteView message) {
  member_->on_message(from, message, clock_.now());
}

void Job::Impl::on_welcome(const MemberWelcome& welcome) {
  const std::lock_guard lock(mutex_);
  key_ = welcome.key;
  is_welcome_ = true;
  changed_.notify_all();
}

void Job::Impl::on_refused(const std::string& why) {
  const std::lock_guard lock(mutex_);
  dismissed_ = why;
  changed_.notify_all();
}

void Job::Impl::on_question(std::uint64_t asker, const std::string& question) {
  answer(question, [this, asker](const std::string& text) { mesh_->reply(asker, text); });
}

void Job::Impl::answer(const std::string& question, std::function<void(std::string)> reply) {
  if (question == "status") {
    reply(status_json(report()));
    return;
  }
  const base::Result<membership::ChangeRequest> request = parse_request(question);
  if (!request.ok()) {
    reply("refused: " + request.status().message());
    return;
  }
  waiting_callers_.push_back(std::move(reply));
  if (const base::Status status = member_->ask(*request, clock_.now()); !status.ok()) {
    const auto refused = std::move(waiting_callers_.back());
    waiting_callers_.pop_back();
    refused("refused: " + status.message());
  }
}

JobReport Job::Impl::report() const {
  const membership::View& view = member_->view();
  JobReport report = report_;
  report.job = ticket_.name();
  report.epoch = view.epoch;
  report.rank = view.rank_of(id_);
  report.waits_for = member_->waits_for(clock_.now());
  const auto add = [&](MemberId id, std::optional<std::uint32_t> rank) {
    const MemberCard* card = mesh_->find(id);
    report.members.push_back({rank, id, card != nullptr ? card->name : "unknown",
                              card != nullptr ? card->address.to_string() : ""});
  };
  for (std::uint32_t rank = 0; rank < view.ranks.size(); ++rank) {
    add(view.ranks[rank], rank);
  }
  for (const MemberId standby : view.standbys) {
    add(standby, std::nullopt);
  }
  // Newcomers: the next change makes them standbys or ranks.
  for (const MemberCard& card : mesh_->roster()) {
    if (!view.has(card.id) && (card.id == id_ || mesh_->has_stream_to(card.id))) {
      add(card.id, std::nullopt);
      report.members.back().waits = true;
    }
  }
  const std::lock_guard lock(mutex_);
  report.why = decision_ ? decision_->why : "";
  report.change_step = decision_ ? decision_->step : 0;
  report.interrupted_ns = decision_ ? interrupted_before(*decision_) : 0;
  report.parked_ns = parked_ns_;
  report.decided_ns = decided_ns_;
  return report;
}

// Called by the metrics' threads.
std::string Job::Impl::metrics() {
  const auto reply = std::make_shared<std::promise<std::string>>();
  std::future<std::string> answered = reply->get_future();
  tasks_.push([this, reply] { reply->set_value(metrics_text(report())); });
  const bool is_there = answered.wait_for(std::chrono::nanoseconds(kMetricsPatience.count())) ==
                        std::future_status::ready;
  return is_there ? answered.get() : "";
}

base::Result<std::string> Job::Impl::ask(const std::string& question, base::Duration limit) {
  const auto reply = std::make_shared<std::promise<std::string>>();
  std::future<std::string> answered = reply->get_future();
  tasks_.push([this, question, reply] {
    answer(question, [reply](const std::string& text) { reply->set_value(text); });
  });
  if (answered.wait_for(std::chrono::nanoseconds(limit.count())) != std::future_status::ready) {
    return base::Status(base::StatusCode::kTimedOut, "the job has not answered yet");
  }
  return answered.get();
}

}  // namespace spillway::elastic
