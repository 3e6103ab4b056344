// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <new>
#include <thread>
#include <utility>

#include "comm/communicator_impl.h"
#include "launch/launch.h"
#include "observe/log.h"

namespace spillway::comm {
namespace {

using std::chrono::milliseconds;

// A closing rank keeps answering its peers until none has sent a datagram for kQuiet.
constexpr milliseconds kQuiet{40};
constexpr milliseconds kMaxLingering{1000};
constexpr milliseconds kLingerStep{10};
constexpr int kGoodbyes = 3;

// A rank answers no peer until its loop runs, so the handover must end before peers take it for
// dead.
base::Duration handover_patience(const Preparation& prepared) {
  return prepared.driver.endpoint.exchange.peer_timeout / 2;
}

}  // namespace

base::Status Communicator::Impl::open() {
  if (base::Status status = open_sockets(); !status.ok()) {
    return status;
  }
  const base::Result<GroupInfo> met = meet(prepared_, config_.id, card());
  return met.ok() ? begin(*met) : met.status();
}

base::Status Communicator::Impl::begin_as(std::uint16_t rank, const GroupInfo& info) {
  if (base::Status status = take_rank({rank, static_cast<std::uint16_t>(info.cards.size())},
                                      base::Environment::of_process(), prepared_);
      !status.ok()) {
    return status;
  }
  return begin(info);
}

base::Status Communicator::Impl::open_sockets() {
  base::Result<std::unique_ptr<net::TransportDriver>> driver =
      net::TransportDriver::open(prepared_.driver, *this);
  if (!driver.ok()) {
    return driver.status();
  }
  driver_ = std::move(driver).value();
  for (const std::string& warning : driver_->warnings()) {
    observe::log_info(observe::LogSubsystem::kNet, "{}", warning);
  }
  offer_ = offer_memory(prepared_);
  return {};
}

base::Status Communicator::Impl::begin(const GroupInfo& info) {
  prepared_.secret.wipe();
  const base::Result<RunIdentity> run = identity_of(info.run_key, prepared_.encrypt);
  if (!run.ok()) {
    return run.status();
  }
  transport::Epoch epoch = run->epoch;
  epoch.rank = rank();
  driver_->begin_epoch(epoch);
  run_key_ = info.run_key;
  const std::vector<RankCard>& cards = info.cards;
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
                                               .are_packets_encrypted = prepared_.encrypt,
                                               .memory = memory_.get(),
                                               .hosts = hosts_of(cards),
                                               .plan = {.rack_ranks = prepared_.rack_ranks},
                                               .shares = prepared_.shares,
                                               .may_stream = may_stream(prepared_, cards),
                                               .operation_timeout = config_.operation_timeout};
  base::Result<std::unique_ptr<collective::Engine>> engine =
      collective::Engine::make(engine_config, *pool_, *this);
  if (!engine.ok()) {
    return engine.status();
  }
  engine_ = std::move(engine).value();
  observer_ = std::make_unique<observe::OperationObserver>(prepared_.identity, prepared_.observer);
  open_trace();
  observe::log_info(
      observe::LogSubsystem::kInit,
      "{} of {} ranks and {} servers at {} over {}, MTU {}, {} threads, launched by {}",
      collective::rank_name(prepared_.group, rank()), world(), prepared_.group.servers,
      driver_->local().to_string(), protocols_of(prepared_.driver.carrier), limits->mtu, threads,
      prepared_.launch.launcher);
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
      check_service_end();
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

void Communicator::Impl::check_service_end() {
  if (prepared_.group.is_server() && (engine_->failure() || engine_->is_service_over())) {
    service_.end(explained(engine_->failure().value_or(base::Status())));
  }
}

// A server submits no operations, so it has nothing to record.
void Communicator::Impl::open_trace() {
  if (prepared_.observer.execution_trace.empty() || prepared_.group.is_server()) {
    return;
  }
  base::Result<std::shared_ptr<observe::ExecutionTrace>> trace = observe::ExecutionTrace::open(
      prepared_.observer.execution_trace, base::Environment::of_process(), prepared_.identity);
  if (!trace.ok()) {
    observe::log_warn("no execution trace: {}", trace.status().message());
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
  auto request = std::make_shared<Request>(
      std::move(on_done),
      trace_ ? trace_->on_call(operation, prepared_.group, trace_group_) : nullptr);
  driver_->post([this, operation, request](transport::Endpoint& endpoint, base::Instant now) {
    const std::uint64_t token = next_token_++;
    try {
      requests_.emplace(token, request);
    } catch (const std::bad_alloc&) {
      request->finish({base::StatusCode::kLimitExceeded, "out of memory"}, empty_report_);
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
  check_service_end();
}

void Communicator::Impl::on_calculated(collective::ComputeJob& job, const base::Status& status) {
  driver_->post([this, &job, status](transport::Endpoint& endpoint, base::Instant now) {
    take_result(job, status, endpoint, now);
    check_service_end();
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
  check_service_end();
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
    finish_later({request, *engine_->failure(), empty_report_});
  }
}

void Communicator::Impl::on_event(const transport::Event& event, transport::Endpoint& endpoint,
                                  base::Instant now) {
  const auto* dead = std::get_if<transport::PeerDead>(&event);
  const bool is_silent = dead != nullptr && dead->cause == transport::DeathCause::kSilent;
  if (is_silent && !engine_->has_failed()) {
    silent_peer_ = launch::SilentPeer{addresses_[dead->rank], has_worked_,
                                      std::string(protocols_of(prepared_.driver.carrier))};
  }
  engine_->on_event(event, endpoint, now);
  calculate(endpoint, now);
}

// Warns once for all peers: what blocks datagrams to one peer mostly blocks them to the others.
void Communicator::Impl::on_stream_used(std::uint16_t peer) {
  observe::log_info(observe::LogSubsystem::kNet, "packets to and from {} go over TCP",
                    collective::rank_name(prepared_.group, peer));
  if (!std::exchange(has_fallen_back_, true)) {
    observe::log_warn(
        "UDP does not get through between this rank and {} ({}), TCP does: packets go over TCP "
        "with whomever that is so; open the firewall for UDP, or say SPILLWAY_CARRIER=tcp",
        collective::rank_name(prepared_.group, peer), addresses_[peer].to_string());
  }
}

void Communicator::Impl::on_timeout(transport::Endpoint& endpoint, base::Instant now) {
  if (observer_->waits().next_look() <= now) {
    observer_->waits().look(observe::wait_of(endpoint.holdup(), pool_->is_busy()), now);
    observer_->waits().tell(endpoint.counters());
  }
  engine_->on_timeout(endpoint, now);
  calculate(endpoint, now);
}

base::Status Communicator::Impl::explained(const base::Status& status) const {
  return status.code() == base::StatusCode::kPeerFailed && silent_peer_
             ? launch::with_advice(status, *silent_peer_)
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
  // The only copy of the report: the engine may still add to its own. If there is no memory for it,
  // the request stays and finish_orphans() ends it.
  auto kept = std::make_shared<const collective::OperationReport>(report);
  const auto found = requests_.find(token);
  const std::shared_ptr<Request> request = found->second;
  requests_.erase(found);
  if (status.ok()) {
    request->finish(status, std::move(kept));
  } else {
    finish_later({request, status, std::move(kept)});
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
    check_service_end();
  });
  return {};
}

base::Status Communicator::Impl::health() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Communicator::Impl::send_goodbye() {
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
  int goodbyes = 0;
  // While a peer still needs data, wait up to the operation timeout, or until the peer is dead.
  // Leaving earlier would fail an operation at that peer that succeeded at the other ranks.
  const auto longest = [&] {
    return before.is_idle ? kMaxLingering
                          : milliseconds(config_.operation_timeout.count() / 1'000'000);
  };
  for (milliseconds waited{0}; waited < longest() && quiet < kQuiet; waited += kLingerStep) {
    if (goodbyes < kGoodbyes) {
      send_goodbye();
      goodbyes += before.is_idle ? 1 : 0;
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
    send_goodbye();
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
  if (base::Status status = observe::start_log(environment); !status.ok()) {
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

Communicator::Slot::Slot(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)), handle_(impl_->card()) {}
Communicator::Slot::~Slot() = default;

base::Result<std::unique_ptr<Communicator::Slot>> Communicator::Slot::open(
    const CommunicatorConfig& config) {
  base::Result<Preparation> prepared = prepare(config, base::Environment::of_process());
  if (!prepared.ok()) {
    return prepared.status();
  }
  auto impl = std::make_unique<Impl>(std::move(prepared).value(), config);
  if (base::Status status = impl->open_sockets(); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Slot>(new Slot(std::move(impl)));
}

const net::SocketAddress& Communicator::Slot::address() const {
  return impl_->address();
}

base::Result<std::unique_ptr<Communicator>> Communicator::Slot::take(std::uint16_t rank,
                                                                     std::span<const Blob> handles,
                                                                     const wire::RunKey& key) {
  if (impl_ == nullptr || rank >= handles.size() || handles[rank] != handle_) {
    return base::invalid_argument("this slot does not belong to that rank, or is used up");
  }
  const base::Result<GroupInfo> info =
      group_info_from(handles, key, static_cast<std::uint16_t>(handles.size()));
  if (!info.ok()) {
    return info.status();
  }
  std::unique_ptr<Impl> impl = std::move(impl_);
  if (base::Status status = impl->begin_as(rank, *info); !status.ok()) {
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

}  // namespace spillway::comm
