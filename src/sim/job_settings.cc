// SPDX-License-Identifier: Apache-2.0
#include "sim/job_settings.h"

#include <iterator>

#include "sim/setting.h"

namespace spillway::sim {
namespace {

constexpr std::uint64_t kMostHosts = UINT16_MAX;  // a rank has 16 bits

// Reads into the value and notes that it was given.
SettingReader noting(bool& given, bool value, SettingReader read) {
  return [&given, value, read = std::move(read)](std::string_view text) -> base::Status {
    given = value;
    return read(text);
  };
}

template <typename T>
SettingReader to_optional(std::optional<T>& out, SettingReader (*reader)(T&)) {
  return [&out, reader](std::string_view text) -> base::Status {
    T value{};
    base::Status status = reader(value)(text);
    if (status.ok()) {
      out = value;
    }
    return status;
  };
}

void append(std::vector<Setting> more, std::vector<Setting>& settings) {
  settings.insert(settings.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
}

std::vector<Setting> common_settings(JobSpec& job) {
  PatternOptions& pattern = job.pattern;
  Flow& flow = pattern.flow;
  return {{"name", to_text(job.name)},
          {"protocol", to_choice<Protocol>(job.protocol, {{"spillway", Protocol::kSpillway},
                                                          {"dctcp", Protocol::kDctcp},
                                                          {"newreno", Protocol::kNewReno}})},
          {"hosts", noting(job.all_hosts, false, to_number(pattern.hosts, 2, kMostHosts))},
          {"first-host", to_number(pattern.first_host, 0, kMostHosts)},
          {"start", to_instant(pattern.start)},
          {"seed", noting(job.own_seed, true, to_number(pattern.seed))},
          {"priority", to_number(flow.priority, 0, SPILLWAY_PRIORITIES - 1)},
          {"importance", to_number(flow.importance, 0, SPILLWAY_IMPORTANCE_REQUIRED)},
          {"required", to_parts(flow.required_permille, 1000)},
          {"unimportant", to_parts(flow.unimportant_permille, 1000)},
          {"loss", to_parts(flow.loss.bound_ppm, 1'000'000)},
          {"min-planes", to_number(flow.loss.min_planes, 1, SPILLWAY_MAX_PLANES)}};
}

std::vector<Setting> pattern_settings(PatternOptions& pattern) {
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

std::vector<Setting> background_settings(PatternOptions& pattern) {
  return {{"load", to_fraction(pattern.load)},
          {"bytes-min", to_byte_count(pattern.bytes_min)},
          {"bytes-max", to_byte_count(pattern.bytes_max)},
          {"until", to_instant(pattern.until)},
          {"on", to_duration(pattern.on)},
          {"off", to_duration(pattern.off)}};
}

std::vector<Setting> tcp_settings(TcpConfig& tcp) {
  return {{"rto-min", to_duration(tcp.rto_min)},
          {"mss", to_number(tcp.payload_bytes, 100, 65'000)},
          {"sack", to_flag(tcp.selective_acks)},
          {"tail-loss-probe", to_flag(tcp.tail_loss_probe)},
          {"tcp-priorities", to_flag(tcp.priority_by_flow)},
          {"segments-per-ack", to_number(tcp.segments_per_ack, 1, 16)},
          {"initial-window", to_number(tcp.initial_window, 1, 10'000)},
          {"tcp-window-max", to_bytes(tcp.window_max)}};
}

// The share of trims that is wanted concerns credit and window alike.
SettingReader to_trimmed_target(SpillwayOptions& options) {
  return [&options](std::string_view text) -> base::Status {
    double share = 0.0;
    base::Status status = to_fraction(share)(text);
    if (status.ok()) {
      options.tuning.trimmed_target = share;
      options.congestion.trimmed_target = share;
    }
    return status;
  };
}

std::vector<Setting> spillway_settings(SpillwayOptions& options) {
  using transport::ControllerKind;
  transport::EndpointTuning& tuning = options.tuning;
  transport::CongestionConfig& congestion = options.congestion;
  return {{"packet", to_number(options.packet_bytes, 128, SPILLWAY_MAX_PACKET)},
          {"planes", to_number(options.planes, 1, SPILLWAY_MAX_PLANES)},
          {"keyed", to_flag(options.keyed)},
          {"real-bytes", to_flag(options.real_bytes)},
          {"receive-rate", to_optional(options.receive_rate, to_rate)},
          {"deadline", to_optional(options.deadline, to_duration)},
          {"paths", to_number(tuning.paths, 1, 64)},
          {"burst", to_number(tuning.burst_packets, 1)},
          {"report", to_number(tuning.report_packets, 1)},
          {"unsolicited", to_bytes(tuning.unsolicited)},
          {"credit-window", to_bytes(tuning.credit_window)},
          {"trimmed-target", to_trimmed_target(options)},
          {"probe-min", to_duration(tuning.probe_min)},
          {"probe-max", to_duration(tuning.probe_max)},
          {"peer-timeout", to_duration(tuning.peer_timeout)},
          {"controller",
           to_choice<ControllerKind>(congestion.kind, {{"spillway", ControllerKind::kSpillway},
                                                       {"dctcp", ControllerKind::kDctcp},
                                                       {"timely", ControllerKind::kTimely}})},
          {"window-initial", to_bytes(congestion.window_initial)},
          {"window-max", to_bytes(congestion.window_max)},
          {"delay-target", to_duration(congestion.delay_target)}};
}

base::Status read_with(std::vector<Setting> own, const Directive& directive, JobSpec& job) {
  std::vector<Setting> settings = common_settings(job);
  append(std::move(own), settings);
  append(tcp_settings(job.tcp), settings);
  append(spillway_settings(job.spillway), settings);
  job.place = directive.place;
  base::Status status = apply_settings(directive, settings);
  job.tcp.kind = job.protocol == Protocol::kNewReno ? TcpKind::kNewReno : TcpKind::kDctcp;
  return status;
}

}  // namespace

base::Status read_job(const Directive& directive, JobSpec& job) {
  return read_with(pattern_settings(job.pattern), directive, job);
}

base::Status read_background(const Directive& directive, JobSpec& job) {
  job.pattern.kind = PatternKind::kBackground;
  job.protocol = Protocol::kDctcp;
  return read_with(background_settings(job.pattern), directive, job);
}

}  // namespace spillway::sim
