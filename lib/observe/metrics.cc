// SPDX-License-Identifier: Apache-2.0
#include "observe/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

#include "observe/safe_text.h"

namespace spillway::runtime {

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

}  // namespace spillway::runtime
