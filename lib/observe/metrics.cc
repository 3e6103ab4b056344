// SPDX-License-Identifier: Apache-2.0
#include "observe/metrics.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

#include "base/own_file.h"
#include "net/system_call.h"
#include "observe/log.h"
#include "observe/operation_record.h"

namespace spillway::observe {

void DurationHistogram::add(base::Duration duration) {
  const auto* bucket = std::lower_bound(kBuckets.begin(), kBuckets.end(), duration);
  ++counts_[static_cast<std::size_t>(bucket - kBuckets.begin())];
  sum_ += duration;
}

std::uint64_t DurationHistogram::count_up_to(std::size_t bucket) const {
  return std::accumulate(counts_.begin(), counts_.begin() + bucket + 1, std::uint64_t{0});
}

std::uint64_t DurationHistogram::count() const {
  return count_up_to(kBuckets.size());
}

void CommunicatorMetrics::add(const OperationRecord& record) {
  OperationCounts& counts = operations[record.kind];
  ++(record.state == OperationState::kDone ? counts.done : counts.failed);
  durations.add(record.finished - record.queued);
  wire_bytes_sent += record.wire_bytes_sent;
  wire_bytes_received += record.wire_bytes_received;
  packets_whole += record.packets_whole;
  packets_trimmed += record.packets_trimmed;
  packets_missing += record.packets_missing;
  packets_duplicate += record.packets_duplicate;
  packets_retransmitted += record.packets_retransmitted;
}

std::vector<PeerMetrics> peer_metrics(std::uint32_t world) {
  std::vector<PeerMetrics> peers(world);
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    peers[rank].rank = rank;
  }
  return peers;
}

namespace {

constexpr const char* kPrefix = "spillway_communicator_";

std::uint64_t trouble(const PeerMetrics& peer) {
  return peer.lost_packets + peer.trimmed_packets + peer.late_operations;
}

// A peer's metrics as shown: one named peer, or the sum of the unnamed ones.
struct ShownPeer {
  std::string name;
  PeerMetrics counts;
};

std::vector<ShownPeer> shown_peers(std::vector<PeerMetrics> peers) {
  const auto named = peers.begin() + static_cast<std::ptrdiff_t>(std::min(kMaxPeers, peers.size()));
  std::stable_sort(peers.begin(), peers.end(),
                   [](const auto& a, const auto& b) { return trouble(a) > trouble(b); });
  std::sort(peers.begin(), named, [](const auto& a, const auto& b) { return a.rank < b.rank; });
  std::vector<ShownPeer> shown;
  std::transform(peers.begin(), named, std::back_inserter(shown), [](const PeerMetrics& peer) {
    return ShownPeer{std::to_string(peer.rank), peer};
  });
  if (named != peers.end()) {
    PeerMetrics rest;
    for (auto peer = named; peer != peers.end(); ++peer) {
      rest.lost_packets += peer->lost_packets;
      rest.trimmed_packets += peer->trimmed_packets;
      rest.late_operations += peer->late_operations;
    }
    shown.push_back({"other", rest});
  }
  return shown;
}

// Groups samples by name, over all communicators.
class MetricsWriter {
 public:
  explicit MetricsWriter(std::span<const CommunicatorMetrics> communicators)
      : communicators_(communicators) {
    for (const CommunicatorMetrics& one : communicators) {
      peers_.push_back(shown_peers(one.peers));
      labels_.push_back(fmt::format("communicator=\"{}\",rank=\"{}\"",
                                    escaped_label(one.communicator), one.rank));
    }
  }

  std::string write() {
    write_operations();
    write_durations();
    write_bytes();
    write_packets();
    write_peers();
    number("memory_bytes", "gauge", "Bytes of memory that the communicator holds.",
           &CommunicatorMetrics::memory_bytes);
    return std::move(text_);
  }

 private:
  void family(const char* name, const char* type, const char* help) {
    fmt::format_to(std::back_inserter(text_), "# HELP {0}{1} {2}\n# TYPE {0}{1} {3}\n", kPrefix,
                   name, help, type);
  }

  // `more` are further labels, with a comma in front.
  template <typename Number>
  void sample(const char* name, std::size_t communicator, const std::string& more, Number value) {
    fmt::format_to(std::back_inserter(text_), "{}{}{{{}{}}} {}\n", kPrefix, name,
                   labels_[communicator], more, value);
  }

  void number(const char* name, const char* type, const char* help,
              std::uint64_t CommunicatorMetrics::*count) {
    family(name, type, help);
    for (std::size_t i = 0; i < communicators_.size(); ++i) {
      sample(name, i, "", communicators_[i].*count);
    }
  }

  struct Labelled {
    const char* label;
    std::uint64_t CommunicatorMetrics::*count;
  };

  void numbers(const char* name, const char* help, std::span<const Labelled> parts) {
    family(name, "counter", help);
    for (std::size_t i = 0; i < communicators_.size(); ++i) {
      for (const Labelled& part : parts) {
        sample(name, i, part.label, communicators_[i].*part.count);
      }
    }
  }

  void write_operations() {
    family("operations_total", "counter", "Operations that ended, by kind and outcome.");
    for (std::size_t i = 0; i < communicators_.size(); ++i) {
      for (const auto& [kind, counts] : communicators_[i].operations) {
        const std::string label = fmt::format(",kind=\"{}\",outcome=", escaped_label(kind));
        sample("operations_total", i, label + "\"done\"", counts.done);
        sample("operations_total", i, label + "\"failed\"", counts.failed);
      }
    }
    number("operations_in_flight", "gauge", "Operations that have not ended.",
           &CommunicatorMetrics::operations_in_flight);
  }

  void write_durations() {
    family("operation_duration_seconds", "histogram",
           "From the call to the end of an operation, whatever its outcome.");
    for (std::size_t i = 0; i < communicators_.size(); ++i) {
      write_histogram(i, communicators_[i].durations);
    }
  }

  void write_histogram(std::size_t communicator, const DurationHistogram& durations) {
    constexpr const char* kBucket = "operation_duration_seconds_bucket";
    for (std::size_t i = 0; i < DurationHistogram::kBuckets.size(); ++i) {
      const double end = base::seconds_of(DurationHistogram::kBuckets[i]);
      sample(kBucket, communicator, fmt::format(",le=\"{}\"", end), durations.count_up_to(i));
    }
    sample(kBucket, communicator, ",le=\"+Inf\"", durations.count());
    sample("operation_duration_seconds_sum", communicator, "", base::seconds_of(durations.sum()));
    sample("operation_duration_seconds_count", communicator, "", durations.count());
  }

  void write_bytes() {
    const Labelled user[] = {{",direction=\"in\"", &CommunicatorMetrics::user_bytes_in},
                             {",direction=\"out\"", &CommunicatorMetrics::user_bytes_out}};
    numbers("user_bytes_total", "Bytes of the caller's data, handed in and handed back.", user);
    number("sent_bytes_total", "counter", "Bytes of UDP payload sent, repeats included.",
           &CommunicatorMetrics::wire_bytes_sent);
    number("received_bytes_total", "counter", "Bytes of UDP payload received.",
           &CommunicatorMetrics::wire_bytes_received);
  }

  void write_packets() {
    const Labelled ends[] = {{",outcome=\"whole\"", &CommunicatorMetrics::packets_whole},
                             {",outcome=\"trimmed\"", &CommunicatorMetrics::packets_trimmed},
                             {",outcome=\"missing\"", &CommunicatorMetrics::packets_missing}};
    numbers("packets_total", "Packets that were expected, by what came of them.", ends);
    number("duplicate_packets_total", "counter", "Packets that came again with nothing new.",
           &CommunicatorMetrics::packets_duplicate);
    number("retransmitted_packets_total", "counter", "Packets that were sent again.",
           &CommunicatorMetrics::packets_retransmitted);
    const Labelled disbelieved[] = {
        {",reason=\"stranger\"", &CommunicatorMetrics::strangers},
        {",reason=\"bad\"", &CommunicatorMetrics::bad_packets},
        {",reason=\"repeated\"", &CommunicatorMetrics::repeated_packets},
        {",reason=\"forged_refusal\"", &CommunicatorMetrics::forged_refusals},
        {",reason=\"icmp\"", &CommunicatorMetrics::ignored_icmp}};
    numbers("disbelieved_total", "Datagrams and ICMP messages that came and changed nothing.",
            disbelieved);
  }

  void write_peers() {
    peer_count("peer_lost_packets_total", "Packets of a peer that stayed missing.",
               &PeerMetrics::lost_packets);
    peer_count("peer_trimmed_packets_total", "Packets of a peer that came cut.",
               &PeerMetrics::trimmed_packets);
    peer_count("peer_late_operations_total", "Operations that ended without all of a peer's part.",
               &PeerMetrics::late_operations);
  }

  void peer_count(const char* name, const char* help, std::uint64_t PeerMetrics::*count) {
    family(name, "counter", help);
    for (std::size_t i = 0; i < communicators_.size(); ++i) {
      for (const ShownPeer& peer : peers_[i]) {
        sample(name, i, fmt::format(",peer=\"{}\"", peer.name), peer.counts.*count);
      }
    }
  }

  std::span<const CommunicatorMetrics> communicators_;
  std::vector<std::vector<ShownPeer>> peers_;  // by communicator, as the labels
  std::vector<std::string> labels_;
  std::string text_;
};

}  // namespace

std::string metrics_text(std::span<const CommunicatorMetrics> communicators) {
  return MetricsWriter(communicators).write();
}

std::string escaped_label(std::string_view value) {
  std::string out;
  for (const char c : clean_text(value)) {
    if (c == '\\' || c == '"') {
      out += '\\';
    }
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

// ------------------------------------------------------------------ export

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
  if (!listen.ok() || listen->empty()) {
    return listen.ok() ? base::Result<OptionalAddress>(OptionalAddress()) : listen.status();
  }
  const bool has_address = listen->find(':') != std::string::npos;
  const auto address = net::SocketAddress::parse(has_address ? *listen : "127.0.0.1:" + *listen);
  return address.ok() ? base::Result<OptionalAddress>(*address)
                      : base::refusal(base::variable("SPILLWAY_METRICS_LISTEN"), *listen);
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
  const base::Result<OptionalAddress> asked = asked_address(environment);
  if (!asked.ok()) {
    return asked.status();
  }
  return MetricsConfig{.file = metrics_path(environment, identity),
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

}  // namespace spillway::observe
