// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/job.h"

#include <array>
#include <iterator>

#include "sim/scenario/directives.h"

namespace spillway::scenario {
namespace {

constexpr std::uint64_t kMaxJobHosts = UINT16_MAX;                 // a rank has 16 bits
constexpr std::uint64_t kMaxFirstNumber = std::uint64_t{1} << 62;  // counters never run out

// Reads the value and records that its key was given.
ValueReader noting(bool& given, bool value, ValueReader read) {
  return [&given, value, read = std::move(read)](std::string_view text) -> base::Status {
    given = value;
    return read(text);
  };
}

template <typename T>
ValueReader to_optional(std::optional<T>& out, ValueReader (*reader)(T&)) {
  return [&out, reader](std::string_view text) -> base::Status {
    T value{};
    base::Status status = reader(value)(text);
    if (status.ok()) {
      out = value;
    }
    return status;
  };
}

void append(std::vector<KeyReader> more, std::vector<KeyReader>& readers) {
  readers.insert(readers.end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
}

std::vector<KeyReader> common_keys(Job& job) {
  PatternOptions& pattern = job.pattern;
  Flow& flow = pattern.flow;
  return {{"name", to_text(job.name)},
          {"protocol", to_choice<Protocol>(job.protocol, {{"spillway", Protocol::kSpillway},
                                                          {"dctcp", Protocol::kDctcp},
                                                          {"newreno", Protocol::kNewReno}})},
          {"hosts", noting(job.all_hosts, false, to_number(pattern.hosts, 2, kMaxJobHosts))},
          {"first-host", to_number(pattern.first_host, 0, kMaxJobHosts)},
          {"start", to_instant(pattern.start)},
          {"seed", noting(job.own_seed, true, to_number(pattern.seed))},
          {"priority", to_number(flow.priority, 0, SPILLWAY_PRIORITIES - 1)},
          {"importance", to_number(flow.importance, 0, SPILLWAY_IMPORTANCE_REQUIRED)},
          {"required", to_parts(flow.required_permille, 1000)},
          {"unimportant", to_parts(flow.unimportant_permille, 1000)},
          {"loss-bound", to_parts(flow.loss.loss_bound_ppm, 1'000'000)},
          {"min-planes", to_number(flow.loss.min_planes, 1, SPILLWAY_MAX_PLANES)}};
}

std::vector<KeyReader> pattern_keys(PatternOptions& pattern) {
  return {{"pattern", to_choice<PatternKind>(pattern.kind,
                                             {{"permutation", PatternKind::kPermutation},
                                              {"incast", PatternKind::kIncast},
                                              {"all-to-all", PatternKind::kAllToAll},
                                              {"parameter-server", PatternKind::kParameterServer},
                                              {"ring", PatternKind::kRing}})},
          {"bytes", to_byte_count(pattern.bytes)},
          {"steps", to_number(pattern.steps, 1)},
          {"senders", to_number(pattern.senders, 1)},
          {"workers", to_number(pattern.workers, 1)},
          {"servers", to_number(pattern.servers, 1)},
          {"layers", to_number(pattern.layers, 1)},
          {"grouped", to_flag(pattern.grouped)},
          {"compute", to_duration(pattern.compute)}};
}

std::vector<KeyReader> background_keys(PatternOptions& pattern) {
  return {{"load", to_fraction(pattern.load)},
          {"bytes-min", to_byte_count(pattern.bytes_min)},
          {"bytes-max", to_byte_count(pattern.bytes_max)},
          {"until", to_instant(pattern.until)},
          {"on", to_duration(pattern.on)},
          {"off", to_duration(pattern.off)}};
}

std::vector<KeyReader> tcp_keys(TcpConfig& tcp) {
  return {{"rto-min", to_duration(tcp.rto_min)},
          {"mss", to_number(tcp.payload_bytes, 100, 65'000)},
          {"sack", to_flag(tcp.selective_acks)},
          {"tail-loss-probe", to_flag(tcp.tail_loss_probe)},
          {"tcp-priorities", to_flag(tcp.priority_by_flow)},
          {"segments-per-ack", to_number(tcp.segments_per_ack, 1, 16)},
          {"initial-window", to_number(tcp.initial_window, 1, 10'000)},
          {"tcp-window-max", to_bytes(tcp.window_max)}};
}

// The target share of trims applies to credit and window alike.
ValueReader to_trimmed_target(SpillwayOptions& options) {
  return [&options](std::string_view text) -> base::Status {
    double share = 0.0;
    base::Status status = to_fraction(share)(text);
    if (status.ok()) {
      options.exchange.trimmed_target = share;
      options.congestion.trimmed_target = share;
    }
    return status;
  };
}

std::vector<KeyReader> spillway_keys(SpillwayOptions& options) {
  using transport::ControllerKind;
  transport::ExchangeConfig& exchange = options.exchange;
  transport::CongestionConfig& congestion = options.congestion;
  return {{"packet", to_number(options.packet_bytes, 128, SPILLWAY_MAX_PACKET)},
          {"precision", to_number(options.precision, 1, SPILLWAY_MAX_PLANES)},
          {"checks", to_choice<wire::Protection>(options.protection,
                                                 {{"tags", wire::Protection::kTags},
                                                  {"encryption", wire::Protection::kEncryption},
                                                  {"crc32c", wire::Protection::kCrc32c}})},
          {"first-number", to_number(options.first_number, 0, kMaxFirstNumber)},
          {"real-bytes", to_flag(options.real_bytes)},
          {"receive-rate", to_optional(options.receive_rate, to_rate)},
          {"deadline", to_optional(options.deadline, to_duration)},
          {"paths", to_number(exchange.paths, 1, 64)},
          {"burst", to_number(exchange.burst_packets, 1)},
          {"report", to_number(exchange.report_packets, 1)},
          {"unsolicited", to_bytes(exchange.unsolicited)},
          {"credit-window", to_bytes(exchange.credit_window)},
          {"trimmed-target", to_trimmed_target(options)},
          {"probe-min", to_duration(exchange.probe_min)},
          {"probe-max", to_duration(exchange.probe_max)},
          {"peer-timeout", to_duration(exchange.peer_timeout)},
          {"controller",
           to_choice<ControllerKind>(congestion.kind, {{"spillway", ControllerKind::kSpillway},
                                                       {"dctcp", ControllerKind::kDctcp},
                                                       {"timely", ControllerKind::kTimely}})},
          {"window-initial", to_bytes(congestion.window_initial)},
          {"window-max", to_bytes(congestion.window_max)},
          {"delay-target", to_duration(congestion.delay_target)}};
}

base::Status read_with(std::vector<KeyReader> own, const Directive& directive, Job& job) {
  std::vector<KeyReader> readers = common_keys(job);
  append(std::move(own), readers);
  append(tcp_keys(job.tcp), readers);
  append(spillway_keys(job.spillway), readers);
  job.place = directive.place;
  base::Status status = read_values(directive, readers);
  job.tcp.kind = job.protocol == Protocol::kNewReno ? TcpKind::kNewReno : TcpKind::kDctcp;
  return status;
}

}  // namespace

std::string_view protocol_name(Protocol protocol) {
  constexpr std::array<std::string_view, 3> kProtocolNames = {"spillway", "dctcp", "newreno"};
  return kProtocolNames[static_cast<std::size_t>(protocol)];
}

base::Status read_job(const Directive& directive, Job& job) {
  return read_with(pattern_keys(job.pattern), directive, job);
}

base::Status read_background(const Directive& directive, Job& job) {
  job.pattern.kind = PatternKind::kBackground;
  job.protocol = Protocol::kDctcp;
  return read_with(background_keys(job.pattern), directive, job);
}

}  // namespace spillway::scenario
