// SPDX-License-Identifier: Apache-2.0
#include "observe/metrics_export.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "base/own_file.h"
#include "net/system_call.h"
#include "observe/identity.h"
#include "observe/log.h"

namespace spillway::runtime {
namespace {

// Threads started while this lives take no signals: the application's handlers run in its own
// threads. One thread.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

std::thread start_thread(std::function<void()> work) {
  const SignalsBlocked blocked;
  return std::thread(std::move(work));
}

}  // namespace

MetricsFile::MetricsFile(std::string path, base::Duration period,
                         std::function<std::string()> render)
    : path_(std::move(path)),
      period_(period),
      render_(std::move(render)),
      thread_(start_thread([this] { run(); })) {}

MetricsFile::~MetricsFile() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void MetricsFile::run() {
  std::unique_lock lock(mutex_);
  const auto ends = [this] { return ends_; };
  do {
    lock.unlock();
    write();
    lock.lock();
  } while (!changed_.wait_for(lock, std::chrono::nanoseconds(period_.count()), ends));
  write();
}

void MetricsFile::write() {
  // World-readable, because the collector runs as another user.
  const base::Status status = base::replace_file(path_, render_(), base::Readers::kEveryone);
  if (!status.ok() && !warned_) {
    log_warn("no metrics: {}: set SPILLWAY_METRICS_FILE to a path that can be written",
             status.message());
  }
  warned_ = !status.ok();
}

namespace {

constexpr std::uint32_t kMaxPort = 65'535;

bool names_process(const std::string& pattern) {
  return pattern.find("%r") != std::string::npos || pattern.find("%p") != std::string::npos;
}

// "dir/name.prom" as "dir/name.1.prom".
std::string with_local_rank(const std::string& path, std::uint32_t local_rank) {
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t dot = path.rfind('.');
  const std::size_t at = dot == std::string::npos || dot <= name ? path.size() : dot;
  return fmt::format("{}.{}{}", path.substr(0, at), local_rank, path.substr(at));
}

std::string metrics_path(const base::Environment& environment, const Identity& identity) {
  const std::string pattern = environment.text("SPILLWAY_METRICS_FILE");
  const std::string path = expand_path(pattern, &identity);
  const bool is_shared = identity.local_rank > 0 && !names_process(pattern);
  return !path.empty() && is_shared ? with_local_rank(path, identity.local_rank) : path;
}

using OptionalAddress = std::optional<net::SocketAddress>;

base::Result<OptionalAddress> asked_address(const base::Environment& environment) {
  const base::Result<std::string> listen = environment.checked_text("SPILLWAY_METRICS_LISTEN");
  const auto port = environment.optional_number("SPILLWAY_METRICS_PORT");
  if (!listen.ok() || !port.ok()) {
    return listen.ok() ? port.status() : listen.status();
  }
  if (!listen->empty()) {
    const auto address = net::SocketAddress::parse(*listen);
    return address.ok() ? base::Result<OptionalAddress>(*address)
                        : base::refusal(base::variable("SPILLWAY_METRICS_LISTEN"), *listen);
  }
  if (!*port) {
    return OptionalAddress();
  }
  const net::SocketAddress here = *net::SocketAddress::parse("127.0.0.1:0");
  return OptionalAddress(here.with_port(static_cast<std::uint16_t>(**port)));
}

// This rank's port: several ranks of a machine get the same variable.
OptionalAddress own_address(const OptionalAddress& asked, const Identity& identity) {
  if (!asked || asked->port() == 0) {
    return asked;
  }
  const std::uint32_t port = asked->port() + identity.local_rank;
  if (port > kMaxPort) {
    log_warn(
        "metrics are not served: {} and local rank {} make a port beyond {}; choose a lower one",
        asked->to_string(), identity.local_rank, kMaxPort);
    return std::nullopt;
  }
  return asked->with_port(static_cast<std::uint16_t>(port));
}

std::unique_ptr<net::MetricsServer> start_server(const net::SocketAddress& at,
                                                 const std::function<std::string()>& render) {
  const SignalsBlocked blocked;
  auto server = net::MetricsServer::start(at, render);
  if (!server.ok()) {
    log_warn("metrics are not served: {}", server.status().message());
    return nullptr;
  }
  log_info(LogSubsystem::kMetrics, "metrics are at http://{}/metrics",
           server.value()->address().to_string());
  return std::move(server).value();
}

}  // namespace

base::Result<MetricsConfig> metrics_config(const base::Environment& environment,
                                           const Identity& identity) {
  const base::Result<std::int64_t> seconds = environment.number("SPILLWAY_METRICS_SECONDS");
  const base::Result<OptionalAddress> asked = asked_address(environment);
  if (!seconds.ok() || !asked.ok()) {
    return seconds.ok() ? asked.status() : seconds.status();
  }
  return MetricsConfig{.file = metrics_path(environment, identity),
                       .period = base::seconds(*seconds),
                       .listen = own_address(*asked, identity)};
}

// One file or port, and the sources shown there.
class MetricsPlace {
 public:
  ~MetricsPlace() {
    file_.reset();  // writes a last time
    server_.reset();
  }

  void write_to(const std::string& path, base::Duration period) {
    try {
      file_ = std::make_unique<MetricsFile>(path, period, [this] { return text(); });
    } catch (const std::system_error& error) {
      log_warn("no metrics: {}", net::cannot_make_thread("writes them", error).message());
    }
  }
  void serve_at(const net::SocketAddress& address) {
    server_ = start_server(address, [this] { return text(); });
  }
  std::optional<net::SocketAddress> address() const {
    return server_ ? std::optional(server_->address()) : std::nullopt;
  }

  void add(const MetricsSource& source) {
    const std::lock_guard lock(mutex_);
    sources_.push_back(&source);
  }
  // Keeps the last source's text: it is the file's final content.
  void remove(const MetricsSource& source) {
    const std::lock_guard lock(mutex_);
    if (sources_.size() == 1) {
      last_text_ = text_of_sources();
    }
    std::erase(sources_, &source);
  }

 private:
  std::string text() {
    const std::lock_guard lock(mutex_);
    return sources_.empty() ? last_text_ : text_of_sources();
  }
  std::string text_of_sources() const {
    std::vector<CommunicatorMetrics> communicators;
    std::string others;
    for (const MetricsSource* source : sources_) {
      if (source->communicator) {
        communicators.push_back(source->communicator());
      } else {
        others += source->text();
      }
    }
    return (communicators.empty() ? "" : metrics_text(communicators)) + others;
  }

  std::mutex mutex_;
  std::vector<const MetricsSource*> sources_;
  std::string last_text_;
  std::unique_ptr<MetricsFile> file_;  // last two members: their threads read the others
  std::unique_ptr<net::MetricsServer> server_;
};

namespace {

// Places by name. A child of fork() shares none of its parent's.
std::shared_ptr<MetricsPlace> shared_place(const std::string& name, const MetricsSource& source,
                                           const std::function<void(MetricsPlace&)>& open) {
  static std::mutex mutex;
  static std::map<std::pair<pid_t, std::string>, std::weak_ptr<MetricsPlace>> places;
  const std::lock_guard lock(mutex);
  std::erase_if(places, [](const auto& place) { return place.second.expired(); });
  std::weak_ptr<MetricsPlace>& known = places[{::getpid(), name}];
  std::shared_ptr<MetricsPlace> place = known.lock();
  if (place != nullptr) {
    place->add(source);
    return place;
  }
  place = std::make_shared<MetricsPlace>();
  place->add(source);
  open(*place);
  known = place;
  return place;
}

}  // namespace

MetricsExport::MetricsExport(const MetricsConfig& config, MetricsSource source)
    : source_(std::move(source)) {
  if (!config.file.empty()) {
    file_ = shared_place("file " + config.file, source_,
                         [&](MetricsPlace& place) { place.write_to(config.file, config.period); });
  }
  if (config.listen) {
    server_ = shared_place("port " + config.listen->to_string(), source_,
                           [&](MetricsPlace& place) { place.serve_at(*config.listen); });
  }
}

MetricsExport::~MetricsExport() {
  for (const std::shared_ptr<MetricsPlace>& place : {file_, server_}) {
    if (place != nullptr) {
      place->remove(source_);
    }
  }
}

std::optional<net::SocketAddress> MetricsExport::address() const {
  return server_ ? server_->address() : std::nullopt;
}

}  // namespace spillway::runtime
