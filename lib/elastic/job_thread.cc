// SPDX-License-Identifier: Apache-2.0
//
// Job: its own thread, and the questions that others ask.
#include <fmt/format.h>

#include <future>
#include <utility>

#include "elastic/job_impl.h"
#include "elastic/question.h"
#include "observe/log.h"

namespace spillway::runtime {
namespace {

using membership::MemberId;

// How long an export waits for the metrics' text.
constexpr base::Duration kMetricsPatience = base::seconds(1);
// How long a leaving process waits for its last messages to be read.
constexpr base::Duration kLastWords = base::milliseconds(100);

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
    mesh_->speak(outgoing->to, outgoing->message);
  }
  while (const std::optional<membership::Event> event = member_->poll_event()) {
    take(*event);
  }
}

void Job::Impl::take(const membership::Event& event) {
  if (const auto* stop = std::get_if<membership::Interrupt>(&event)) {
    interrupt(*stop);
  } else if (const auto* decided = std::get_if<membership::Decided>(&event)) {
    log_info(LogSubsystem::kInit, "epoch {} with {} ranks: {}", decided->decision.view.epoch,
             decided->decision.view.ranks.size(), decided->decision.why);
    const std::lock_guard lock(mutex_);
    decision_ = decided->decision;
    doors_ = doors_of(decision_->view);
    decided_ns_ = wall_clock_ns();
    count_change();
  } else if (const auto* dismissed = std::get_if<membership::Dismissed>(&event)) {
    log_info(LogSubsystem::kInit, "no longer a member: {}", dismissed->why);
    const std::lock_guard lock(mutex_);
    dismissed_ = dismissed->why;
  } else if (const auto* straggler = std::get_if<membership::StragglerFound>(&event)) {
    report_.stragglers.push_back(fmt::format("rank {} takes {:.1f} times as long as the median",
                                             straggler->rank, straggler->times_median));
    log_warn("{}", report_.stragglers.back());
  } else if (const auto* answered = std::get_if<membership::Answered>(&event)) {
    for (const auto& reply : std::exchange(askers_, {})) {
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
  std::vector<std::shared_ptr<Communicator>> ended;
  {
    const std::lock_guard lock(mutex_);
    interrupt_ = asked;
    interrupted_ns_ = wall_clock_ns();
    if (!asked.at_step) {
      for (const std::weak_ptr<Communicator>& watched : watched_) {
        ended.push_back(watched.lock());
      }
    }
  }
  for (const std::shared_ptr<Communicator>& communicator : ended) {
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
    for (const base::Instant end = clock_.now() + kLastWords; clock_.now() < end;) {
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
  heard_of_.insert(member.id);
  changed_.notify_all();
}

void Job::Impl::on_lost(MemberId member) {
  member_->on_lost(member, membership::LossCause::kClosed, clock_.now());
  const std::lock_guard lock(mutex_);
  heard_of_.insert(member);
  changed_.notify_all();
}

void Job::Impl::on_speech(MemberId from, base::ByteView speech) {
  member_->on_message(from, speech, clock_.now());
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
  const base::Result<membership::Request> request = parse_request(question);
  if (!request.ok()) {
    reply("refused: " + request.status().message());
    return;
  }
  askers_.push_back(std::move(reply));
  if (const base::Status status = member_->ask(*request, clock_.now()); !status.ok()) {
    const auto refused = std::move(askers_.back());
    askers_.pop_back();
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

}  // namespace spillway::runtime
