// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "base/text.h"
#include "sim/scenario/directives.h"

namespace spillway::scenario {

// ------------------------------------------------------------------ jobs

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

ValueReader to_trimmed_target(SpillwayOptions& options) {
  return [&options](std::string_view text) -> base::Status {
    double share = 0.0;
    base::Status status = to_fraction(share)(text);
    if (status.ok()) {
      options.exchange.trimmed_target = share;
    }
    return status;
  };
}

std::vector<KeyReader> spillway_keys(SpillwayOptions& options) {
  transport::ExchangeConfig& exchange = options.exchange;
  return {{"packet", to_number(options.packet_bytes, 128, SPILLWAY_MAX_PACKET)},
          {"precision", to_number(options.precision, 1, SPILLWAY_MAX_PLANES)},
          {"checks", to_choice<wire::Protection>(options.protection,
                                                 {{"tags", wire::Protection::kTags},
                                                  {"encryption", wire::Protection::kEncryption}})},
          {"first-number", to_number(options.first_number, 0, kMaxFirstNumber)},
          {"real-bytes", to_flag(options.real_bytes)},
          {"receive-rate", to_optional(options.receive_rate, to_rate)},
          {"deadline", to_optional(options.deadline, to_duration)},
          {"paths", to_number(exchange.paths, 1, 64)},
          {"burst", to_number(exchange.burst_packets, 1)},
          {"report", to_number(exchange.report_packets, 1)},
          {"unsolicited", to_bytes(exchange.unsolicited)},
          {"trimmed-target", to_trimmed_target(options)},
          {"probe-min", to_duration(exchange.probe_min)},
          {"probe-max", to_duration(exchange.probe_max)},
          {"peer-timeout", to_duration(exchange.peer_timeout)},
          {"window-initial", to_bytes(exchange.window.initial)},
          {"window-max", to_bytes(exchange.window.most)},
          {"delay-target", to_duration(exchange.window.delay_target)}};
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

// ------------------------------------------------------------------ tenants

namespace {

// Per period of a TCP tenant: a flow's receiver keeps a bit per segment.
constexpr base::Bytes kMaxFlowBytes = base::bytes(1'000'000'000);
// Sums of starts and periods stay far from the end of time.
constexpr base::Duration kLongest = base::seconds(1'000'000);

base::Status bad(const Tenant& tenant, std::string_view what) {
  return base::invalid_argument(fmt::format("{}: tenant: {}", tenant.place, what));
}

// A rate, or a share of the link.
ValueReader to_rate_or_share(Tenant& tenant) {
  return [&tenant](std::string_view text) -> base::Status {
    if (const base::Result<base::BitRate> rate = base::parse_rate(text); rate.ok()) {
      tenant.rate = *rate;
      return validate_rate(*rate);
    }
    const base::Result<double> share = base::parse_fraction(text);
    if (!share.ok() || *share <= 0.0) {
      return base::invalid_argument(
          fmt::format("\"{}\" is neither a rate such as 500mbit nor a share of the host's link "
                      "above zero such as 50%",
                      text));
    }
    tenant.rate = base::BitRate();
    tenant.share = *share;
    return {};
  };
}

base::Status check(const Tenant& tenant) {
  if (tenant.from.empty() || tenant.to.empty()) {
    return bad(tenant, "say between which hosts: from=NAME to=NAME");
  }
  if (tenant.from == tenant.to) {
    return bad(tenant, "from= and to= are the same host");
  }
  if (tenant.on <= base::Duration()) {
    return bad(tenant, "on= must be above 0; off=0 is all the time");
  }
  if (std::max({tenant.on, tenant.off, tenant.start.since_zero()}) > kLongest) {
    return bad(tenant, "on=, off= and start= are at most 1000000s");
  }
  return {};
}

base::Result<HostId> find_host(const Tenant& tenant, const std::string& name,
                               const Topology& topology) {
  const auto found = std::ranges::find(topology.host_names, name);
  if (found == topology.host_names.end()) {
    return bad(tenant, fmt::format("there is no host '{}'; hosts are {} to {}", name,
                                   topology.host_names.front(), topology.host_names.back()));
  }
  return static_cast<HostId>(found - topology.host_names.begin());
}

base::BitRate rate_of(const Tenant& tenant, base::BitRate link) {
  if (tenant.rate > base::BitRate()) {
    return tenant.rate;
  }
  return base::bits_per_second(std::llround(tenant.share * static_cast<double>(link.count())));
}

base::Status check_size(const Tenant& tenant, base::BitRate rate) {
  if (const base::Status status = validate_rate(rate); !status.ok()) {
    return bad(tenant, status.message());
  }
  if (tenant.protocol != TenantProtocol::kUdp &&
      base::transmission_time(kMaxFlowBytes, rate) < tenant.on) {
    return bad(tenant, fmt::format("more than {} bytes in one on= period; give a shorter one",
                                   kMaxFlowBytes.count()));
  }
  return {};
}

}  // namespace

base::Status read_tenant(const Directive& directive, Tenant& tenant) {
  tenant.place = directive.place;
  const base::Status status = read_values(
      directive, {{"from", to_text(tenant.from)},
                  {"to", to_text(tenant.to)},
                  {"protocol", to_choice<TenantProtocol>(tenant.protocol,
                                                         {{"udp", TenantProtocol::kUdp},
                                                          {"newreno", TenantProtocol::kNewReno},
                                                          {"dctcp", TenantProtocol::kDctcp}})},
                  {"rate", to_rate_or_share(tenant)},
                  {"on", to_duration(tenant.on)},
                  {"off", to_duration(tenant.off)},
                  {"start", to_instant(tenant.start)}});
  return status.ok() ? check(tenant) : status;
}

base::Result<TenantPlan> plan_tenant(const Tenant& tenant, const Topology& topology) {
  const base::Result<HostId> from = find_host(tenant, tenant.from, topology);
  if (!from.ok()) {
    return from.status();
  }
  const base::Result<HostId> to = find_host(tenant, tenant.to, topology);
  if (!to.ok()) {
    return to.status();
  }
  const base::BitRate rate = rate_of(tenant, topology.host_rate(*from));
  if (const base::Status status = check_size(tenant, rate); !status.ok()) {
    return status;
  }
  return TenantPlan{.from = *from,
                    .to = *to,
                    .protocol = tenant.protocol,
                    .rate = rate,
                    .on = tenant.on,
                    .off = tenant.off,
                    .start = tenant.start};
}

}  // namespace spillway::scenario
