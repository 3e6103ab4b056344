// SPDX-License-Identifier: Apache-2.0
#include "runtime/communicator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>
#include <unordered_map>

#include "net/transport_driver.h"
#include "runtime/communicator_setup.h"
#include "runtime/compute_threads.h"
#include "runtime/debug_log.h"
#include "runtime/local_memory.h"
#include "runtime/meeting.h"
#include "runtime/operation_observer.h"
#include "runtime/service.h"
#include "runtime/silent_peer.h"

namespace spillway::runtime {
namespace {

using std::chrono::milliseconds;

// After its last operation a rank stays until nobody has asked it anything for so long.
constexpr milliseconds kQuiet{40};
constexpr milliseconds kMostLingering{1000};
constexpr milliseconds kLingerStep{10};
constexpr int kFarewells = 3;

base::Result<wire::PacketAuth> auth_of(const CommunicatorSetup& setup) {
  if (setup.secret.empty()) {
    return packetize::unkeyed_auth(setup.job);
  }
  return wire::PacketAuth::keyed(
      {reinterpret_cast<const std::uint8_t*>(setup.secret.data()), setup.secret.size()});
}

}  // namespace

class Communicator::Impl final : private net::DriverListener, private collective::EngineListener {
 public:
  Impl(CommunicatorSetup setup, wire::PacketAuth auth, const CommunicatorOptions& options)
      : setup_(std::move(setup)), auth_(std::move(auth)), options_(options), process_(::getpid()) {}
  ~Impl();

  base::Status open();
  std::uint16_t rank() const { return setup_.group.rank; }
  std::uint16_t world() const { return setup_.group.workers(); }
  base::Result<std::shared_ptr<OperationRequest>> submit(const OperationOptions& options);
  base::Status abort(const std::string& why);
  base::Status health() const;
  const Service& service() const { return service_; }

 private:
  base::Status check_process() const;

  void on_event(const transport::Event& event, transport::Endpoint& endpoint,
                base::Instant now) override;
  base::Instant next_timeout() const override { return engine_->next_timeout(); }
  void on_timeout(transport::Endpoint& endpoint, base::Instant now) override;
  void on_complete(std::uint64_t token, const base::Status& ended,
                   const collective::OperationReport& report) override;
  base::Status explained(const base::Status& status) const;

  void start(const OperationOptions& options, const std::shared_ptr<OperationRequest>& request,
             transport::Endpoint& endpoint, base::Instant now);
  void calculate(transport::Endpoint& endpoint, base::Instant now);
  void start_serving();
  void on_served(const base::Status& status, const collective::OperationReport& report);
  void look_whether_served();
  void on_calculated(collective::ComputeJob& job);
  struct FailedRequest {
    std::shared_ptr<OperationRequest> request;
    base::Status status;
    collective::OperationReport report;
  };
  void finish_later(FailedRequest failed);
  void finish_failed();
  void say_goodbye();
  void linger();
  struct Activity {
    std::uint64_t datagrams = 0;  // that came so far
    bool is_idle = false;
  };
  Activity activity();

  CommunicatorSetup setup_;
  wire::PacketAuth auth_;
  CommunicatorOptions options_;
  pid_t process_;
  std::unique_ptr<OperationObserver> observer_;
  std::unique_ptr<net::TransportDriver> driver_;
  std::vector<net::SocketAddress> addresses_;  // where to send to each rank
  std::unique_ptr<ComputeThreads> pool_;
  std::unique_ptr<LocalMemory> memory_;
  std::unique_ptr<collective::Engine> engine_;

  // Of the loop's thread.
  std::uint64_t next_token_ = 1;
  base::Instant memory_due_;               // when to look at it again
  bool has_worked_ = false;                // an operation has ended well
  std::optional<SilentPeer> silent_peer_;  // that broke the communicator, if one did
  std::unordered_map<std::uint64_t, std::shared_ptr<OperationRequest>> requests_;
  std::vector<FailedRequest> failed_;  // whose callers are about to be told

  mutable std::mutex mutex_;
  base::Status failure_;
  Service service_;  // of a parameter server
};

base::Status Communicator::Impl::open() {
  base::Result<std::unique_ptr<net::TransportDriver>> driver =
      net::TransportDriver::open(setup_.driver, auth_, *this);
  if (!driver.ok()) {
    return driver.status();
  }
  driver_ = std::move(driver).value();
  for (const std::string& warning : driver_->warnings()) {
    log_info(LogSubsystem::kNet, "{}", warning);
  }
  const base::Result<std::vector<RankCard>> cards = meet(setup_, options_.id, driver_->local());
  if (!cards.ok()) {
    return cards.status();
  }
  const base::Result<packetize::Fabric> fabric = common_fabric(*cards);
  if (!fabric.ok()) {
    return fabric.status();
  }
  addresses_ = addresses_of(setup_, *cards);
  if (base::Status status = add_peers(addresses_, rank(), *fabric, *driver_); !status.ok()) {
    return status;
  }
  const unsigned threads = setup_.threads.value_or(
      compute_thread_count(std::thread::hardware_concurrency(), ranks_here(*cards, rank())));
  pool_ = std::make_unique<ComputeThreads>(
      threads, [this](collective::ComputeJob& job) { on_calculated(job); });
  collective::EngineConfig config;
  config.group = setup_.group;
  config.job = setup_.job;
  config.fabric = *fabric;
  config.keyed = auth_.is_keyed();
  config.operation_timeout = options_.operation_timeout;
  memory_ = memory_of(*cards, rank());
  config.memory = memory_.get();
  base::Result<std::unique_ptr<collective::Engine>> engine =
      collective::Engine::make(config, auth_, *pool_, *this);
  if (!engine.ok()) {
    return engine.status();
  }
  engine_ = std::move(engine).value();
  const Identity identity{options_.name, rank(), setup_.group.world, setup_.launch.local_rank,
                          setup_.group.servers};
  observer_ = std::make_unique<OperationObserver>(identity, Environment::of_process());
  log_info(LogSubsystem::kInit,
           "{} of {} ranks and {} servers at {}, MTU {}, {} threads, launched by {}",
           collective::rank_name(setup_.group, rank()), world(), setup_.group.servers,
           driver_->local().to_string(), fabric->mtu, threads, setup_.launch.launcher);
  driver_->start();
  if (setup_.group.is_server()) {
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
  observer_->begin(token, report.operation, /*priority=*/0, report.queued);
  observer_->end(token, status, report);
  if (status.ok()) {
    service_.add(report);
  }
}

void Communicator::Impl::look_whether_served() {
  if (setup_.group.is_server() && (engine_->failure() || engine_->is_service_over())) {
    service_.end(explained(engine_->failure().value_or(base::Status())));
  }
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

base::Result<std::shared_ptr<OperationRequest>> Communicator::Impl::submit(
    const OperationOptions& options) {
  if (base::Status status = check_process(); !status.ok()) {
    return status;
  }
  if (setup_.group.is_server()) {
    return base::invalid_argument("a parameter server calls no operations");
  }
  if (base::Status status = validate(options.operation, setup_.group); !status.ok()) {
    return status;
  }
  const bool lacks_input =
      options.input == nullptr && input_bytes(options.operation, setup_.group) > 0;
  const bool lacks_output =
      options.output == nullptr && output_bytes(options.operation, setup_.group) > 0;
  if (lacks_input || lacks_output) {
    return base::invalid_argument(fmt::format("{} needs {} at this rank",
                                              describe(options.operation),
                                              lacks_input ? "an input" : "an output"));
  }
  if (options.priority >= SPILLWAY_PRIORITIES) {
    return base::invalid_argument("priority goes from 0 to 7");
  }
  auto request = std::make_shared<OperationRequest>(options.on_done);
  driver_->post([this, options, request](transport::Endpoint& endpoint, base::Instant now) {
    start(options, request, endpoint, now);
  });
  return request;
}

void Communicator::Impl::start(const OperationOptions& options,
                               const std::shared_ptr<OperationRequest>& request,
                               transport::Endpoint& endpoint, base::Instant now) {
  const std::uint64_t token = next_token_++;
  requests_.emplace(token, request);
  observer_->begin(token, options.operation, options.priority, now);
  if (now >= memory_due_) {
    memory_due_ = now + base::seconds(1);  // the endpoint counts message by message
    observer_->holds(engine_->memory_bytes() + endpoint.memory_bytes());
  }
  const base::Status status =
      engine_->submit({.operation = options.operation,
                       .input = static_cast<const std::uint8_t*>(options.input),
                       .output = static_cast<std::uint8_t*>(options.output),
                       .priority = options.priority,
                       .token = token},
                      endpoint, now);
  if (!status.ok()) {
    on_complete(token, status, {});
  }
  calculate(endpoint, now);
}

// Without threads: what there is to calculate, now.
void Communicator::Impl::calculate(transport::Endpoint& endpoint, base::Instant now) {
  while (collective::ComputeJob* job = pool_->take_inline()) {
    job->run();
    engine_->on_computed(*job, endpoint, now);
  }
  look_whether_served();
}

void Communicator::Impl::on_calculated(collective::ComputeJob& job) {
  driver_->post([this, &job](transport::Endpoint& endpoint, base::Instant now) {
    engine_->on_computed(job, endpoint, now);
    look_whether_served();
  });
}

void Communicator::Impl::on_event(const transport::Event& event, transport::Endpoint& endpoint,
                                  base::Instant now) {
  const auto* dead = std::get_if<transport::PeerDead>(&event);
  if (dead != nullptr && !engine_->has_failed()) {
    silent_peer_ = SilentPeer{addresses_[dead->rank], has_worked_};
  }
  engine_->on_event(event, endpoint, now);
  calculate(endpoint, now);
}

void Communicator::Impl::on_timeout(transport::Endpoint& endpoint, base::Instant now) {
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
  if (setup_.group.is_server()) {
    on_served(status, report);
    return;
  }
  observer_->end(token, status, report);
  const auto found = requests_.find(token);
  const std::shared_ptr<OperationRequest> request = found->second;
  requests_.erase(found);
  if (status.ok()) {
    request->finish(status, report);
  } else {
    finish_later({request, status, report});
  }
}

// The other ranks hear of a failure first: a caller that hears of it may end its process at once.
// What there is to send leaves between two turns of the loop, so two turns are waited for.
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

// Who missed the last STOP asks again; who is told that this rank is done asks no more. Late ranks
// get what they are owed first.
void Communicator::Impl::linger() {
  Activity before = activity();
  milliseconds quiet{0};
  int farewells = 0;
  for (milliseconds waited{0}; waited < kMostLingering && quiet < kQuiet; waited += kLingerStep) {
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
    // The threads and sockets are the parent's: there is nothing here to end.
    static_cast<void>(driver_.release());
    static_cast<void>(pool_.release());
    static_cast<void>(observer_.release());
    return;
  }
  if (engine_ && setup_.group.world > 1) {
    linger();
  } else if (engine_) {
    say_goodbye();
  }
  if (pool_) {
    pool_->finish();  // jobs end and are handed to the loop, which still runs
  }
  if (driver_) {
    driver_->stop_and_wait();
    finish_failed();
  }
  driver_.reset();
}

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::~Communicator() = default;

base::Result<std::unique_ptr<Communicator>> Communicator::create(
    const CommunicatorOptions& options) {
  start_log();
  base::Result<CommunicatorSetup> setup = prepare(options, Environment::of_process());
  if (!setup.ok()) {
    return setup.status();
  }
  base::Result<wire::PacketAuth> auth = auth_of(*setup);
  if (!auth.ok()) {
    return auth.status();
  }
  auto impl = std::make_unique<Impl>(std::move(setup).value(), std::move(auth).value(), options);
  if (base::Status status = impl->open(); !status.ok()) {
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
base::Result<std::shared_ptr<OperationRequest>> Communicator::submit(
    const OperationOptions& options) {
  return impl_->submit(options);
}
base::Status Communicator::abort(const std::string& why) {
  return impl_->abort(why);
}
base::Status Communicator::health() const {
  return impl_->health();
}
std::optional<base::Status> Communicator::wait_served(milliseconds limit) const {
  return impl_->service().wait(limit);
}
ServerTotals Communicator::server_totals() const {
  return impl_->service().totals();
}

}  // namespace spillway::runtime
