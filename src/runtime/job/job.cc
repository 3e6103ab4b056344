// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/job.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "base/clock.h"
#include "net/task_queue.h"
#include "runtime/job/founding.h"
#include "runtime/job/handle.h"
#include "runtime/job/job_report.h"
#include "runtime/job/mesh.h"
#include "runtime/job/question.h"
#include "runtime/launch/launch.h"
#include "runtime/launch/secret.h"
#include "runtime/launch/timeouts.h"
#include "runtime/observe/identity.h"
#include "runtime/observe/log.h"
#include "runtime/observe/metrics_export.h"

namespace spillway::runtime {
namespace {

using membership::Decision;
using membership::MemberId;

// How long founders wait for streams to each other, and whoever asks for an answer.
constexpr base::Duration kFoundingPatience = base::seconds(10);
constexpr base::Duration kJoiningPatience = base::seconds(10);
// For a text of metrics.
constexpr base::Duration kMetricsPatience = base::seconds(1);
// For the last words of a process that leaves to be read.
constexpr base::Duration kLastWords = base::milliseconds(100);

std::int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

base::Result<Nonce> nonce_of_job(const wire::RunKey& key) {
  Nonce nonce{};
  const base::Status status = wire::derive(key.bytes, {}, "spillway job ticket v1", nonce);
  return status.ok() ? base::Result<Nonce>(nonce) : status;
}

base::Result<wire::RunKey> key_of_channel(const wire::RunKey& job, const Decision& decision,
                                          std::uint16_t channel) {
  Blob salt(decision.nonce.begin(), decision.nonce.end());
  salt.resize(salt.size() + 6);
  base::store_le(salt.data() + decision.nonce.size(), decision.view.epoch);
  base::store_le(salt.data() + decision.nonce.size() + 4, channel);
  wire::RunKey key;
  const base::Status status = wire::derive(job.bytes, salt, "spillway epoch v1", key.bytes);
  return status.ok() ? base::Result<wire::RunKey>(key) : status;
}

base::Result<MemberId> draw_member_id() {
  const base::Result<Random> random = draw_random();
  if (!random.ok()) {
    return random.status();
  }
  return std::max<MemberId>(base::load_le<MemberId>(random->data()), 1);
}

}  // namespace

class Job::Impl final : private MeshListener {
 public:
  explicit Impl(const JobConfig& config) : config_(config) {}
  ~Impl() override { stop(); }

  base::Status found(Communicator& communicator);
  base::Status join(const Ticket& ticket);

  const Ticket& ticket() const { return ticket_; }
  std::optional<Change> first_change() const { return first_change_; }
  Verdict step(std::uint64_t step, base::Duration work);
  bool is_interrupted() const;
  void watch(std::weak_ptr<Communicator> communicator);
  base::Result<std::optional<Change>> park(const membership::Position& position,
                                           base::Duration limit);
  base::Result<std::unique_ptr<Communicator>> communicator(std::uint16_t channel,
                                                           std::span<const std::uint16_t> ranks);
  void leave();
  std::optional<bool> finish(base::Duration limit);
  base::Result<std::string> ask(const std::string& question, base::Duration limit);

 private:
  using Seats = std::vector<std::unique_ptr<Communicator::Seat>>;
  using Task = std::function<void()>;

  // Of the application's thread.
  base::Status open_seats();
  base::Status open_mesh(base::ByteView secret, Standing standing, MemberId id);
  base::Status take_secret();
  base::Status publish_ticket() const;
  void start(std::optional<membership::View> view);
  base::Status wait_for_streams(std::size_t others);
  std::optional<Change> take_decision(bool had_state);
  Change change_of(const Decision& decision) const;
  base::Status export_metrics(std::uint32_t rank);
  std::string metrics();
  // When training was told to stop for it; 0: it was not.
  std::int64_t interrupted_before(const Decision& decision) const {
    return interrupt_ && interrupt_->epoch + 1 == decision.view.epoch ? interrupted_ns_ : 0;
  }
  bool applies(const membership::Interrupt& interrupt) const {
    return interrupt.epoch == epoch_ && !interrupt.at_step;
  }

  // Of the job's thread.
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
  void on_speech(MemberId from, base::ByteView speech) override;
  void on_welcome(const MemberWelcome& welcome) override;
  void on_refused(const std::string& why) override;
  wire::RunKey key() const override { return key_; }
  void on_question(std::uint64_t asker, const std::string& question) override;

  JobConfig config_;
  Secret secret_;
  Ticket ticket_{};
  MemberId id_ = 0;
  bool on_one_machine_ = false;
  base::MonotonicClock clock_;
  std::optional<Change> first_change_;

  // Of the application's thread.
  Seats next_seats_;  // whose handle was handed in
  membership::Handle next_handle_;
  Seats seats_;  // of the present epoch, not yet used
  Decision present_;

  net::TaskQueue<Task> tasks_;
  std::thread thread_;
  std::unique_ptr<MetricsExport> exported_;

  // Of the job's thread, once that runs.
  wire::RunKey key_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<membership::Member> member_;
  std::vector<std::function<void(std::string)>> askers_;  // who wait for a change that they want
  JobReport report_;  // what is not asked of others when it is told
  bool is_stopping_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t epoch_ = 0;  // that the application was told of
  std::optional<membership::Interrupt> interrupt_;
  std::int64_t interrupted_ns_ = 0;
  std::int64_t parked_ns_ = 0;
  std::optional<Decision> decision_;  // the newest
  std::int64_t decided_ns_ = 0;
  std::optional<std::string> dismissed_;
  std::set<MemberId> heard_of_;  // connected, or found to be gone
  bool is_welcome_ = false;
  std::vector<std::weak_ptr<Communicator>> watched_;
};

base::Status Job::Impl::take_secret() {
  base::Result<Secret> secret =
      secret_from(base::Environment::of_process(), config_.communicator.secret);
  if (!secret.ok()) {
    return secret.status();
  }
  secret_ = std::move(secret).value();
  return {};
}

base::Status Job::Impl::open_seats() {
  if (!next_seats_.empty()) {
    return {};
  }
  CommunicatorConfig config = config_.communicator;
  config.id.reset();
  config.servers.reset();
  config.seat_on_one_machine = on_one_machine_;
  std::vector<Blob> cards;
  for (std::uint16_t channel = 0; channel < config_.channels; ++channel) {
    base::Result<std::unique_ptr<Communicator::Seat>> seat = Communicator::Seat::open(config);
    if (!seat.ok()) {
      next_seats_.clear();
      return seat.status();
    }
    cards.push_back((*seat)->handle());
    next_seats_.push_back(std::move(seat).value());
  }
  base::Result<membership::Handle> handle = encode_handle(cards);
  if (!handle.ok()) {
    return handle.status();
  }
  next_handle_ = std::move(handle).value();
  return {};
}

base::Status Job::Impl::open_mesh(base::ByteView secret, Standing standing, MemberId id) {
  const base::Result<Credential> credential = ticket_.credential(secret);
  if (!credential.ok()) {
    return credential.status();
  }
  id_ = id;
  base::Result<std::unique_ptr<Mesh>> mesh =
      Mesh::open({.job = ticket_.job,
                  .credential = *credential,
                  .standing = standing,
                  .listen = next_seats_.front()->address().with_port(0),
                  .id = id,
                  .name = fmt::format("{}:{}", host_name(), ::getpid())},
                 *this);
  if (!mesh.ok()) {
    return mesh.status();
  }
  mesh_ = std::move(mesh).value();
  return {};
}

base::Status Job::Impl::found(Communicator& communicator) {
  if (config_.standbys >= communicator.world()) {
    return base::invalid_argument(fmt::format(
        "{} standbys leave no rank of {} to train: start more processes, or ask for fewer",
        config_.standbys, communicator.world()));
  }
  const base::Result<JobRoots> roots = communicator.job_roots();
  const base::Result<MemberId> id = draw_member_id();
  if (!roots.ok() || !id.ok()) {
    return roots.ok() ? id.status() : roots.status();
  }
  key_ = roots->key;
  on_one_machine_ = roots->on_one_machine;
  const base::Result<Nonce> nonce = nonce_of_job(key_);
  if (!nonce.ok()) {
    return nonce.status();
  }
  ticket_.job = *nonce;
  for (const base::Status& status : {take_secret(), open_seats()}) {
    if (!status.ok()) {
      return status;
    }
  }
  if (base::Status status = open_mesh(secret_.bytes(), Standing::kMember, *id); !status.ok()) {
    return status;
  }
  secret_.wipe();
  ticket_.address = mesh_->own().address;
  const base::Result<std::vector<Founder>> founders =
      gather_founders(communicator, {mesh_->own(), next_handle_});
  if (!founders.ok()) {
    return founders.status();
  }
  decision_ = founding_decision(*founders, config_.standbys);
  decided_ns_ = wall_clock_ns();
  for (const Founder& founder : *founders) {
    mesh_->introduce(founder.card);
  }
  first_change_ = take_decision(/*had_state=*/true);
  if (base::Status status = open_seats(); !status.ok()) {
    return status;
  }
  start(present_.view);
  if (base::Status status = export_metrics(communicator.rank()); !status.ok()) {
    return status;
  }
  return wait_for_streams(founders->size() - 1);
}

// Rank 0's: it is in the job for sure.
base::Status Job::Impl::publish_ticket() const {
  const bool is_first = !present_.view.ranks.empty() && present_.view.ranks.front() == id_;
  return is_first && !config_.ticket_file.empty() ? ticket_.write_to(config_.ticket_file)
                                                  : base::Status();
}

base::Status Job::Impl::join(const Ticket& ticket) {
  const base::Result<MemberId> id = draw_member_id();
  if (!id.ok()) {
    return id.status();
  }
  ticket_ = ticket;
  on_one_machine_ = ticket.address.to_string().starts_with("127.");
  for (const base::Status& status : {take_secret(), open_seats()}) {
    if (!status.ok()) {
      return status;
    }
  }
  if (base::Status status = open_mesh(secret_.bytes(), Standing::kNewcomer, *id); !status.ok()) {
    return status;
  }
  secret_.wipe();
  mesh_->dial(ticket.address);
  ticket_.address = mesh_->own().address;
  start(std::nullopt);
  if (base::Status status = export_metrics(0); !status.ok()) {
    return status;
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::nanoseconds(kJoiningPatience.count()),
                    [this] { return is_welcome_ || dismissed_; });
  if (!is_welcome_) {
    return {base::StatusCode::kUnavailable,
            fmt::format("the job at {} cannot be joined: {}", ticket.address.to_string(),
                        dismissed_.value_or("it does not answer"))};
  }
  return {};
}

void Job::Impl::start(std::optional<membership::View> view) {
  membership::MemberConfig config = config_.membership;
  config.seed = id_;
  member_ = std::make_unique<membership::Member>(config, id_, std::move(view), next_handle_,
                                                 clock_.now());
  thread_ = std::thread([this] { run(); });
}

base::Status Job::Impl::export_metrics(std::uint32_t rank) {
  const base::Environment environment = base::Environment::of_process();
  const base::Result<std::uint16_t> local_rank = local_rank_from(environment);
  if (!local_rank.ok()) {
    return local_rank.status();
  }
  Identity identity{.communicator = "job", .rank = rank, .world = 1, .local_rank = *local_rank};
  const base::Result<MetricsConfig> config = metrics_config(environment, identity);
  if (!config.ok()) {
    return config.status();
  }
  exported_ =
      std::make_unique<MetricsExport>(*config, MetricsSource{.text = [this] { return metrics(); }});
  return {};
}

base::Status Job::Impl::wait_for_streams(std::size_t others) {
  std::unique_lock lock(mutex_);
  const bool all = changed_.wait_for(lock, std::chrono::nanoseconds(kFoundingPatience.count()),
                                     [&] { return heard_of_.size() >= others; });
  if (all) {
    return {};
  }
  return {base::StatusCode::kUnavailable,
          fmt::format("{} of {} other members cannot be reached over TCP: members watch each other "
                      "that way; open the ports between their hosts",
                      others - heard_of_.size(), others)};
}

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

// What the member has to say, to others and to the application.
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

// Under the mutex, when something was decided.
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
                                  .is_done = *dismissed_ == membership::kJobDone,
                                  .interrupted_ns = interrupted_ns_,
                                  .parked_ns = parked_ns_,
                                  .decided_ns = wall_clock_ns()});
    }
    if (std::optional<Change> change = take_decision(position.has_state)) {
      return change;
    }
    lock.unlock();
    say();  // a standby that stays one
    lock.lock();
  }
}

// Goes over to the newest epoch. Nothing: it does not concern the application.
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
                .is_done = false,
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
  std::optional<std::uint16_t> own;
  for (const std::uint16_t rank : ranks) {
    if (rank >= present_.handles.size()) {
      return base::invalid_argument(
          fmt::format("there is no rank {} of {}", rank, present_.handles.size()));
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
  }
  if (!own) {
    return base::invalid_argument("this process is none of these ranks");
  }
  wire::RunKey job_key;
  {
    const std::lock_guard lock(mutex_);
    job_key = key_;
  }
  const base::Result<wire::RunKey> key = key_of_channel(job_key, present_, channel);
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

void Job::Impl::stop() {
  if (!thread_.joinable()) {
    return;
  }
  exported_.reset();  // asks the thread
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
  report.job = to_hex(ticket_.job);
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
  const std::lock_guard lock(mutex_);
  report.why = decision_ ? decision_->why : "";
  report.change_step = decision_ ? decision_->step : 0;
  report.interrupted_ns = decision_ ? interrupted_before(*decision_) : 0;
  report.parked_ns = parked_ns_;
  report.decided_ns = decided_ns_;
  return report;
}

// Asked for by threads of the metrics.
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

Job::Job(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Job::~Job() = default;

base::Result<std::unique_ptr<Job>> Job::found(Communicator& communicator, const JobConfig& config) {
  auto impl = std::make_unique<Impl>(config);
  if (base::Status status = impl->found(communicator); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Job>(new Job(std::move(impl)));
}

base::Result<std::unique_ptr<Job>> Job::join(const Ticket& ticket, const JobConfig& config) {
  auto impl = std::make_unique<Impl>(config);
  if (base::Status status = impl->join(ticket); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Job>(new Job(std::move(impl)));
}

const Ticket& Job::ticket() const {
  return impl_->ticket();
}
std::optional<Change> Job::first_change() const {
  return impl_->first_change();
}
Verdict Job::step(std::uint64_t step, base::Duration work) {
  return impl_->step(step, work);
}
bool Job::is_interrupted() const {
  return impl_->is_interrupted();
}
void Job::watch(std::weak_ptr<Communicator> communicator) {
  impl_->watch(std::move(communicator));
}
base::Result<std::optional<Change>> Job::park(const membership::Position& position,
                                              base::Duration limit) {
  return impl_->park(position, limit);
}
base::Result<std::unique_ptr<Communicator>> Job::communicator(
    std::uint16_t channel, std::span<const std::uint16_t> ranks) {
  return impl_->communicator(channel, ranks);
}
void Job::leave() {
  impl_->leave();
}
std::optional<bool> Job::finish(base::Duration limit) {
  return impl_->finish(limit);
}
base::Result<std::string> Job::ask(const std::string& question, base::Duration limit) {
  return impl_->ask(question, limit);
}

}  // namespace spillway::runtime
