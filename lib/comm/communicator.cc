// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <new>
#include <thread>
#include <unordered_map>

#include "comm/carrier.h"
#include "comm/compute_threads.h"
#include "comm/local_memory.h"
#include "comm/meeting.h"
#include "comm/preparation.h"
#include "comm/service.h"
#include "comm/sum_rules.h"
#include "launch/timeouts.h"
#include "net/transport_driver.h"
#include "observe/execution_trace.h"
#include "observe/log.h"
#include "observe/operation_observer.h"
#include "wire/key.h"

namespace spillway::runtime {
namespace {

using std::chrono::milliseconds;

// A closing rank keeps answering its peers until none has sent a datagram for kQuiet.
constexpr milliseconds kQuiet{40};
constexpr milliseconds kMaxLingering{1000};
constexpr milliseconds kLingerStep{10};
constexpr int kFarewells = 3;

// A rank answers no peer until its loop runs, so the handover must end before peers take it for
// dead.
base::Duration handover_patience(const Preparation& prepared) {
  return prepared.driver.endpoint.exchange.peer_timeout / 2;
}

}  // namespace

class Communicator::Impl final : private net::DriverListener, private collective::EngineListener {
 public:
  Impl(Preparation prepared, const CommunicatorConfig& config)
      : prepared_(std::move(prepared)), config_(config), process_(::getpid()) {
    config_.secret.wipe();
  }
  ~Impl();

  base::Status open();
  base::Status open_door();
  Blob card() const { return to_blob(own_card(prepared_, driver_->local(), memory_card())); }
  // Begins as rank `rank` of the introduced ranks.
  base::Status sit(std::uint16_t rank, const Introductions& introductions);
  std::uint16_t rank() const { return prepared_.group.rank; }
  std::uint16_t world() const { return prepared_.group.workers(); }
  base::Result<std::shared_ptr<Request>> submit(const collective::Operation& operation,
                                                Request::Callback on_done);
  base::Status abort(const std::string& why);
  base::Status health() const;
  const Service& service() const { return service_; }
  const wire::RunKey& run_key() const { return run_key_; }
  const net::SocketAddress& address() const { return driver_->local(); }
  bool is_on_one_machine() const { return prepared_.launch.on_one_machine(); }

 private:
  base::Status begin(const Introductions& introductions);
  MemoryCard memory_card() const { return offer_ ? offer_->card() : MemoryCard{}; }
  base::Status check_process() const;
  void open_trace();

  void on_event(const transport::Event& event, transport::Endpoint& endpoint,
                base::Instant now) override;
  base::Instant next_timeout() const override {
    return std::min(engine_->next_timeout(), observer_->waits().next_look());
  }
  void on_timeout(transport::Endpoint& endpoint, base::Instant now) override;
  bool leaves_processors() const override { return !engine_->is_coding(); }
  void on_broken(const base::Status& cause, transport::Endpoint& endpoint,
                 base::Instant now) override;
  void on_stream_used(std::uint16_t peer) override;
  void on_complete(std::uint64_t token, const base::Status& ended,
                   const collective::OperationReport& report) override;
  base::Status explained(const base::Status& status) const;

  void start(const collective::Operation& operation, std::uint64_t token,
             transport::Endpoint& endpoint, base::Instant now);
  void calculate(transport::Endpoint& endpoint, base::Instant now);
  void start_serving();
  void on_served(const base::Status& status, const collective::OperationReport& report);
  void look_whether_served();
  void on_calculated(collective::ComputeJob& job, const base::Status& status);
  void take_result(collective::ComputeJob& job, const base::Status& status,
                   transport::Endpoint& endpoint, base::Instant now);
  struct FailedRequest {
    std::shared_ptr<Request> request;
    base::Status status;
    collective::OperationReport report;
  };
  void finish_later(FailedRequest failed);
  void finish_orphans();
  void finish_failed();
  void say_goodbye();
  void linger();
  struct Activity {
    std::uint64_t datagrams = 0;  // received so far
    bool is_idle = false;
  };
  Activity activity();

  Preparation prepared_;
  CommunicatorConfig config_;
  pid_t process_;
  std::unique_ptr<OperationObserver> observer_;
  std::shared_ptr<ExecutionTrace> trace_;  // null: nothing is recorded
  std::string trace_group_;
  std::unique_ptr<net::TransportDriver> driver_;
  std::optional<MemoryOffer> offer_;           // until begin() takes it
  std::vector<net::SocketAddress> addresses_;  // send addresses, by rank
  packetize::PacketLimits packet_limits_;      // common to all ranks
  wire::RunKey run_key_;
  std::unique_ptr<ComputeThreads> pool_;
  std::unique_ptr<LocalMemory> memory_;
  std::unique_ptr<collective::Engine> engine_;

  // Used only by the loop's thread.
  std::uint64_t next_token_ = 1;
  base::Instant memory_due_;               // when to record memory use again
  bool has_worked_ = false;                // an operation has succeeded
  bool has_fallen_back_ = false;           // to TCP, for at least one peer
  std::optional<SilentPeer> silent_peer_;  // the peer whose silence broke the communicator
  std::unordered_map<std::uint64_t, std::shared_ptr<Request>> requests_;
  std::vector<FailedRequest> failed_;  // callers not yet told

  mutable std::mutex mutex_;
  base::Status failure_;
  Service service_;  // used only by parameter servers
};

base::Status Communicator::Impl::open() {
  if (base::Status status = open_door(); !status.ok()) {
    return status;
  }
  const base::Result<Introductions> met = meet(prepared_, config_.id, card());
  return met.ok() ? begin(*met) : met.status();
}

base::Status Communicator::Impl::sit(std::uint16_t rank, const Introductions& introductions) {
  if (base::Status status =
          take_rank({rank, static_cast<std::uint16_t>(introductions.cards.size())},
                    base::Environment::of_process(), prepared_);
      !status.ok()) {
    return status;
  }
  return begin(introductions);
}

base::Status Communicator::Impl::open_door() {
  base::Result<std::unique_ptr<net::TransportDriver>> driver =
      net::TransportDriver::open(prepared_.driver, *this);
  if (!driver.ok()) {
    return driver.status();
  }
  driver_ = std::move(driver).value();
  for (const std::string& warning : driver_->warnings()) {
    log_info(LogSubsystem::kNet, "{}", warning);
  }
  offer_ = offer_memory(prepared_);
  return {};
}

base::Status Communicator::Impl::begin(const Introductions& introductions) {
  prepared_.secret.wipe();
  const base::Result<RunIdentity> run = identity_of(introductions.run_key, prepared_.encrypt);
  if (!run.ok()) {
    return run.status();
  }
  transport::Epoch epoch = run->epoch;
  epoch.rank = rank();
  driver_->begin_epoch(epoch);
  run_key_ = introductions.run_key;
  const std::vector<RankCard>& cards = introductions.cards;
  const base::Result<packetize::PacketLimits> limits = common_packet_limits(cards);
  if (!limits.ok()) {
    return limits.status();
  }
  packet_limits_ = *limits;
  addresses_ = addresses_of(prepared_, cards);
  if (base::Status status = add_peers(addresses_, cards, rank(), *limits, *driver_); !status.ok()) {
    return status;
  }
  const unsigned processors = std::thread::hardware_concurrency();
  const unsigned neighbours = ranks_here(cards, rank());
  const unsigned threads = prepared_.threads.value_or(compute_thread_count(processors, neighbours));
  base::Result<std::unique_ptr<ComputeThreads>> pool = ComputeThreads::start(
      threads, [this](collective::ComputeJob& job, const base::Status& status) {
        on_calculated(job, status);
      });
  if (!pool.ok()) {
    return pool.status();
  }
  pool_ = std::move(pool).value();
  memory_ =
      memory_of(std::exchange(offer_, std::nullopt), cards, rank(), handover_patience(prepared_));
  const collective::EngineConfig engine_config{.group = prepared_.group,
                                               .job = run->job,
                                               .packet_limits = *limits,
                                               .memory = memory_.get(),
                                               .plan = {.rack_ranks = prepared_.rack_ranks},
                                               .shares = prepared_.shares,
                                               .coded_chunks = prepared_.chunks,
                                               .operation_timeout = config_.operation_timeout};
  base::Result<std::unique_ptr<collective::Engine>> engine =
      collective::Engine::make(engine_config, *pool_, *this);
  if (!engine.ok()) {
    return engine.status();
  }
  engine_ = std::move(engine).value();
  observer_ = std::make_unique<OperationObserver>(prepared_.identity, prepared_.observer);
  open_trace();
  log_info(LogSubsystem::kInit,
           "{} of {} ranks and {} servers at {} over {}, MTU {}, {} threads, launched by {}",
           collective::rank_name(prepared_.group, rank()), world(), prepared_.group.servers,
           driver_->local().to_string(), protocols_of(prepared_.driver.carrier), limits->mtu,
           threads, prepared_.launch.launcher);
  const base::Status helped =
      has_processor_for_helper(processors, neighbours) ? driver_->help_when_idle() : base::Status();
  if (base::Status status = helped.ok() ? driver_->start() : helped; !status.ok()) {
    engine_.reset();  // no loop runs, so linger() would wait forever
    return status;
  }
  if (prepared_.group.is_server()) {
    start_serving();
  }
  return {};
}

void Communicator::Impl::start_serving() {
  service_.begin(world());
  driver_->post([this](transport::Endpoint& endpoint, base::Instant now) {
    if (const base::Status status = engine_->serve(endpoint, now); !status.ok()) {
      engine_->fail(status, rank(), wire::FailureCause::kInternal, endpoint, now);
      look_whether_served();
    }
  });
}

void Communicator::Impl::on_served(const base::Status& status,
                                   const collective::OperationReport& report) {
  const std::uint64_t token = next_token_++;
  observer_->begin(token, report.operation, report.queued);
  observer_->end(token, status, report);
  if (status.ok()) {
    service_.add(report);
  }
}

void Communicator::Impl::look_whether_served() {
  if (prepared_.group.is_server() && (engine_->failure() || engine_->is_service_over())) {
    service_.end(explained(engine_->failure().value_or(base::Status())));
  }
}

// A server submits no operations, so it has nothing to record.
void Communicator::Impl::open_trace() {
  if (prepared_.observer.execution_trace.empty() || prepared_.group.is_server()) {
    return;
  }
  base::Result<std::shared_ptr<ExecutionTrace>> trace = ExecutionTrace::open(
      prepared_.observer.execution_trace, base::Environment::of_process(), prepared_.identity);
  if (!trace.ok()) {
    log_warn("no execution trace: {}", trace.status().message());
    return;
  }
  trace_ = std::move(trace).value();
  trace_group_ = trace_->group_for(prepared_.identity);
}

base::Status Communicator::Impl::check_process() const {
  if (::getpid() == process_) {
    return {};
  }
  return base::invalid_argument(fmt::format(
      "this communicator belongs to process {}: a child of fork() cannot use it; make one in the "
      "child, or start workers with spawn",
      process_));
}

base::Result<std::shared_ptr<Request>> Communicator::Impl::submit(
    const collective::Operation& asked, Request::Callback on_done) {
  if (base::Status status = check_process(); !status.ok()) {
    return status;
  }
  const collective::Operation operation =
      with_algorithm(asked, prepared_.algorithm, prepared_.group);
  if (base::Status status = engine_->admit(operation); !status.ok()) {
    return status;
  }
  if (base::Status status = check_sums(operation, prepared_.encrypt, packet_limits_);
      !status.ok()) {
    return status;
  }
  auto request = std::make_shared<Request>(
      std::move(on_done),
      trace_ ? trace_->on_call(operation, prepared_.group, trace_group_) : nullptr);
  driver_->post([this, operation, request](transport::Endpoint& endpoint, base::Instant now) {
    const std::uint64_t token = next_token_++;
    try {
      requests_.emplace(token, request);
    } catch (const std::bad_alloc&) {
      request->finish({base::StatusCode::kLimitExceeded, "out of memory"}, {});
      throw;
    }
    start(operation, token, endpoint, now);
  });
  return request;
}

void Communicator::Impl::start(const collective::Operation& operation, std::uint64_t token,
                               transport::Endpoint& endpoint, base::Instant now) {
  observer_->begin(token, operation, now);
  if (now >= memory_due_) {
    observer_->network(driver_->counters());
    memory_due_ = now + base::seconds(1);  // memory_bytes() visits every message: not on each call
    observer_->holds(engine_->memory_bytes() + endpoint.memory_bytes() +
                     (memory_ ? memory_->memory_bytes() : 0));
  }
  if (const base::Status status = engine_->submit(operation, token, endpoint, now); !status.ok()) {
    on_complete(token, status, {});
  }
  calculate(endpoint, now);
}

// Without compute threads, the loop runs the queued jobs itself.
void Communicator::Impl::calculate(transport::Endpoint& endpoint, base::Instant now) {
  while (collective::ComputeJob* job = pool_->take_inline()) {
    take_result(*job, run_job(*job), endpoint, now);
  }
  look_whether_served();
}

void Communicator::Impl::on_calculated(collective::ComputeJob& job, const base::Status& status) {
  driver_->post([this, &job, status](transport::Endpoint& endpoint, base::Instant now) {
    take_result(job, status, endpoint, now);
    look_whether_served();
  });
}

void Communicator::Impl::take_result(collective::ComputeJob& job, const base::Status& status,
                                     transport::Endpoint& endpoint, base::Instant now) {
  if (!status.ok()) {
    engine_->fail(status, rank(), wire::FailureCause::kInternal, endpoint, now);
  }
  engine_->on_computed(job, endpoint, now);
  finish_orphans();
}

void Communicator::Impl::on_broken(const base::Status& cause, transport::Endpoint& endpoint,
                                   base::Instant now) {
  engine_->fail(cause, rank(), wire::FailureCause::kInternal, endpoint, now);
  finish_orphans();
  look_whether_served();
}

// Ends requests that the engine lost, or never got, because of an exception: nothing else ends
// them. It waits until the engine is done, so none of their jobs still runs.
void Communicator::Impl::finish_orphans() {
  if (requests_.empty() || !engine_->has_failed() || !engine_->is_done()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    failure_ = *engine_->failure();
  }
  for (const auto& [token, request] : std::exchange(requests_, {})) {
    finish_later({request, *engine_->failure(), {}});
  }
}

void Communicator::Impl::on_event(const transport::Event& event, transport::Endpoint& endpoint,
                                  base::Instant now) {
  const auto* dead = std::get_if<transport::PeerDead>(&event);
  const bool is_silent = dead != nullptr && dead->cause == transport::DeathCause::kSilent;
  if (is_silent && !engine_->has_failed()) {
    silent_peer_ = SilentPeer{addresses_[dead->rank], has_worked_,
                              std::string(protocols_of(prepared_.driver.carrier))};
  }
  engine_->on_event(event, endpoint, now);
  calculate(endpoint, now);
}

// Warns once for all peers: what blocks datagrams to one peer mostly blocks them to the others.
void Communicator::Impl::on_stream_used(std::uint16_t peer) {
  log_info(LogSubsystem::kNet, "packets to and from {} go over TCP",
           collective::rank_name(prepared_.group, peer));
  if (!std::exchange(has_fallen_back_, true)) {
    log_warn(
        "UDP does not get through between this rank and {} ({}), TCP does: packets go over TCP "
        "with whomever that is so; open the firewall for UDP, or say SPILLWAY_CARRIER=tcp",
        collective::rank_name(prepared_.group, peer), addresses_[peer].to_string());
  }
}

void Communicator::Impl::on_timeout(transport::Endpoint& endpoint, base::Instant now) {
  if (observer_->waits().next_look() <= now) {
    observer_->waits().look(wait_of(endpoint.holdup(), pool_->is_busy()), now);
    observer_->waits().tell(endpoint.counters());
  }
  engine_->on_timeout(endpoint, now);
  calculate(endpoint, now);
}

base::Status Communicator::Impl::explained(const base::Status& status) const {
  return status.code() == base::StatusCode::kPeerFailed && silent_peer_
             ? with_advice(status, *silent_peer_)
             : status;
}

void Communicator::Impl::on_complete(std::uint64_t token, const base::Status& ended,
                                     const collective::OperationReport& report) {
  const base::Status status = explained(ended);
  has_worked_ = has_worked_ || status.ok();
  if (!status.ok() && engine_->has_failed()) {
    const std::lock_guard lock(mutex_);
    failure_ = status;
  }
  if (prepared_.group.is_server()) {
    on_served(status, report);
    return;
  }
  observer_->waits().tell(driver_->counters().endpoint);
  observer_->end(token, status, report);
  const auto found = requests_.find(token);
  const std::shared_ptr<Request> request = found->second;
  requests_.erase(found);
  if (status.ok()) {
    request->finish(status, report);
  } else {
    finish_later({request, status, report});
  }
}

// Tells the other ranks of a failure before the caller, which may end its process at once. Queued
// packets leave between two turns of the loop, so this waits for two turns.
void Communicator::Impl::finish_later(FailedRequest failed) {
  failed_.push_back(std::move(failed));
  if (failed_.size() > 1) {
    return;
  }
  driver_->post([this](transport::Endpoint&, base::Instant) {
    driver_->post([this](transport::Endpoint&, base::Instant) { finish_failed(); });
  });
}

void Communicator::Impl::finish_failed() {
  for (const FailedRequest& failed : std::exchange(failed_, {})) {
    failed.request->finish(failed.status, failed.report);
  }
}

base::Status Communicator::Impl::abort(const std::string& why) {
  if (base::Status status = check_process(); !status.ok()) {
    return status;
  }
  driver_->post([this, why](transport::Endpoint& endpoint, base::Instant now) {
    engine_->fail({base::StatusCode::kAborted, "aborted: " + why}, rank(),
                  wire::FailureCause::kAborted, endpoint, now);
    look_whether_served();
  });
  return {};
}

base::Status Communicator::Impl::health() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Communicator::Impl::say_goodbye() {
  driver_->post([this](transport::Endpoint& endpoint, base::Instant now) {
    if (engine_->is_done() && !engine_->has_failed()) {
      if (engine_->is_idle()) {
        endpoint.leave(rank(), wire::FailureCause::kClosed);
      }
    } else {
      engine_->fail({base::StatusCode::kAborted, "the communicator was destroyed"}, rank(),
                    wire::FailureCause::kAborted, endpoint, now);
    }
  });
}

Communicator::Impl::Activity Communicator::Impl::activity() {
  std::promise<Activity> promise;
  driver_->post([&](transport::Endpoint&, base::Instant) {
    promise.set_value({driver_->counters().received.datagrams, engine_->is_idle()});
  });
  return promise.get_future().get();
}

// A peer that missed the last STOP asks again; a peer that knows this rank is done stops asking.
// Late ranks first get the data they still need.
void Communicator::Impl::linger() {
  Activity before = activity();
  milliseconds quiet{0};
  int farewells = 0;
  // While a peer still needs data, wait up to the operation timeout, or until the peer is dead.
  // Leaving earlier would fail an operation at that peer that succeeded at the other ranks.
  const auto longest = [&] {
    return before.is_idle ? kMaxLingering
                          : milliseconds(config_.operation_timeout.count() / 1'000'000);
  };
  for (milliseconds waited{0}; waited < longest() && quiet < kQuiet; waited += kLingerStep) {
    if (farewells < kFarewells) {
      say_goodbye();
      farewells += before.is_idle ? 1 : 0;
    }
    std::this_thread::sleep_for(kLingerStep);
    const Activity now = activity();
    const bool is_quiet = now.is_idle && now.datagrams == before.datagrams;
    quiet = is_quiet ? quiet + kLingerStep : milliseconds{0};
    before = now;
  }
}

Communicator::Impl::~Impl() {
  if (::getpid() != process_) {
    // After fork(): the threads and sockets belong to the parent process, so nothing is stopped.
    static_cast<void>(driver_.release());
    static_cast<void>(pool_.release());
    static_cast<void>(observer_.release());
    return;
  }
  if (engine_ && prepared_.group.world > 1) {
    linger();
  } else if (engine_) {
    say_goodbye();
  }
  if (pool_) {
    pool_->finish();  // needs the loop, which takes the results of the last jobs
  }
  if (driver_) {
    driver_->stop_and_wait();
    finish_failed();
  }
  if (trace_) {
    trace_->flush();
  }
  driver_.reset();
}

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::~Communicator() = default;

base::Result<std::unique_ptr<Communicator>> Communicator::create(const CommunicatorConfig& config) {
  const base::Environment environment = base::Environment::of_process();
  if (base::Status status = base::check(environment); !status.ok()) {
    return status;
  }
  if (base::Status status = start_log(environment); !status.ok()) {
    return status;
  }
  base::Result<Preparation> prepared = prepare(config, environment);
  if (!prepared.ok()) {
    return prepared.status();
  }
  auto impl = std::make_unique<Impl>(std::move(prepared).value(), config);
  if (base::Status status = impl->open(); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Communicator>(new Communicator(std::move(impl)));
}

Communicator::Seat::Seat(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)), handle_(impl_->card()) {}
Communicator::Seat::~Seat() = default;

base::Result<std::unique_ptr<Communicator::Seat>> Communicator::Seat::open(
    const CommunicatorConfig& config) {
  base::Result<Preparation> prepared = prepare(config, base::Environment::of_process());
  if (!prepared.ok()) {
    return prepared.status();
  }
  auto impl = std::make_unique<Impl>(std::move(prepared).value(), config);
  if (base::Status status = impl->open_door(); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Seat>(new Seat(std::move(impl)));
}

const net::SocketAddress& Communicator::Seat::address() const {
  return impl_->address();
}

base::Result<std::unique_ptr<Communicator>> Communicator::Seat::take(std::uint16_t rank,
                                                                     std::span<const Blob> handles,
                                                                     const wire::RunKey& key) {
  if (impl_ == nullptr || rank >= handles.size() || handles[rank] != handle_) {
    return base::invalid_argument("this seat is not at that place, or is used up");
  }
  const base::Result<Introductions> introductions =
      introduced(handles, key, static_cast<std::uint16_t>(handles.size()));
  if (!introductions.ok()) {
    return introductions.status();
  }
  std::unique_ptr<Impl> impl = std::move(impl_);
  if (base::Status status = impl->sit(rank, *introductions); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Communicator>(new Communicator(std::move(impl)));
}

std::uint16_t Communicator::rank() const {
  return impl_->rank();
}
std::uint16_t Communicator::world() const {
  return impl_->world();
}
base::Result<std::shared_ptr<Request>> Communicator::submit(const collective::Operation& operation,
                                                            Request::Callback on_done) {
  return impl_->submit(operation, std::move(on_done));
}
base::Status Communicator::abort(const std::string& why) {
  return impl_->abort(why);
}
base::Status Communicator::health() const {
  return impl_->health();
}
base::Result<JobRoots> Communicator::job_roots() const {
  JobRoots roots{.key = {}, .on_one_machine = impl_->is_on_one_machine()};
  const base::Status status =
      wire::derive(impl_->run_key(), {.use = wire::KeyUse::kJob}, roots.key.bytes);
  return status.ok() ? base::Result<JobRoots>(roots) : status;
}
std::optional<base::Status> Communicator::wait_served(milliseconds limit) const {
  return impl_->service().wait(limit);
}
ServerTotals Communicator::server_totals() const {
  return impl_->service().totals();
}

}  // namespace spillway::runtime
