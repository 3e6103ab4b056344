// SPDX-License-Identifier: Apache-2.0
//
// A job: hosts that send each other flows in a pattern, over one protocol. Background traffic is a
// job as well, one that no run waits for.
//
// `job` and `background` lines of a scenario are read into it. `background` takes the keys of `job`
// except those of patterns, and uses DCTCP by default. Keys of a protocol that the job does not use
// are read and ignored, so that one file compares protocols with an override of job.protocol alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/units.h"
#include "sim/scenario/directives.h"
#include "sim/scenario/topology.h"
#include "sim/scenario/workload.h"
#include "transport/endpoint.h"
#include "wire/packet_auth.h"

namespace spillway::scenario {

// TCP settings for the baseline: TCP as a data centre would run it. The model (sim/tcp) counts in
// segments and leaves out costs of real TCP that do not matter to the comparison. Its errors favour
// TCP: every flow is an open connection, hosts need no processor time, and a lost retransmission is
// noticed as quickly as a lost segment.
//
// Defaults: an initial window of 10 segments, selective acknowledgements, one acknowledgement per
// segment, rto_min of 10 ms. Two settings decide how TCP fares in an incast and must be stated
// beside every number: rto_min (Linux: 200 ms, data centres: 1 to 10 ms) and tail loss probes (RFC
// 8985; on in Linux, off here). Without probes a lost tail costs a whole RTO.

enum class TcpKind : std::uint8_t { kNewReno, kDctcp };

struct TcpConfig {
  TcpKind kind = TcpKind::kDctcp;
  bool selective_acks = true;     // off: three duplicate ACKs and partial ACKs (RFC 6582)
  bool tail_loss_probe = false;   // RFC 8985, section 7; needs selective_acks
  bool priority_by_flow = false;  // off: DSCP 0 for all, flows take turns
  std::uint8_t segments_per_ack = 1;
  std::uint32_t payload_bytes = 1460;  // of a full segment
  std::uint32_t initial_window = 10;   // segments
  base::Bytes window_max = base::bytes(4 * 1024 * 1024);
  base::Duration rto_min = base::milliseconds(10);
  base::Duration rto_max = base::seconds(60);
  base::Duration ack_delay_max = base::microseconds(500);  // where segments_per_ack > 1
  double dctcp_gain = 1.0 / 16.0;

  // Before the first round-trip sample. Real stacks begin at a second.
  base::Duration rto_initial() const { return std::max(rto_min, base::milliseconds(1)); }
  std::uint32_t window_max_segments() const {
    return std::max<std::uint32_t>(initial_window,
                                   static_cast<std::uint32_t>(window_max.count() / payload_bytes));
  }
};

enum class Protocol : std::uint8_t { kSpillway, kDctcp, kNewReno };
std::string_view protocol_name(Protocol protocol);

struct SpillwayOptions {
  std::uint32_t packet_bytes = 1472;                      // UDP payload of a full packet
  std::uint8_t precision = 16;                            // bits per value of a whole packet
  wire::Protection protection = wire::Protection::kTags;  // packets have the same sizes with both
  std::uint64_t first_number = 0;  // where packet counters start, as after months
  bool real_bytes = false;  // encode, send and decode real tensors; else packets carry only a size
  std::optional<base::BitRate> receive_rate;  // unset: the rate of the host's link
  std::optional<base::Duration> deadline;     // per flow
  transport::EndpointLimits limits;
  transport::ExchangeConfig exchange;
};

struct Job {
  std::string name;
  std::string place;  // for messages: "line 4"
  Protocol protocol = Protocol::kSpillway;
  PatternOptions pattern;
  bool all_hosts = true;  // pattern.hosts was not given
  bool own_seed = false;  // pattern.seed was given
  TcpConfig tcp;
  SpillwayOptions spillway;
};

base::Status read_job(const Directive& directive, Job& job);
base::Status read_background(const Directive& directive, Job& job);

// A tenant: another user's traffic between two hosts, for as long as the network runs. It sends
// during `on`, is silent during `off`, and repeats; with `off` of 0 it always sends.
//
//   udp             frames of 1,514 bytes at `rate`, regardless of loss; frames for which the
//                   host's card had no time in a period are not sent later
//   newreno, dctcp  `rate` times `on` as one flow per period; the next flow waits until the
//                   one before has ended
//
// The rate counts wire bytes for udp and payload for the others. `tenant` lines of a scenario are
// read into a Tenant; plan_tenant() resolves its hosts.

enum class TenantProtocol : std::uint8_t { kUdp, kNewReno, kDctcp };

struct Tenant {
  std::string place;  // for messages: "line 4"
  std::string from;   // hosts' names
  std::string to;
  TenantProtocol protocol = TenantProtocol::kUdp;
  base::BitRate rate;  // 0: use `share`
  double share = 0.5;  // of the sending host's link
  base::Duration on = base::milliseconds(10);
  base::Duration off = base::milliseconds(10);
  base::Instant start;
};

struct TenantPlan {
  HostId from = 0;
  HostId to = 0;
  TenantProtocol protocol = TenantProtocol::kUdp;
  base::BitRate rate;
  base::Duration on;
  base::Duration off;
  base::Instant start;
};

base::Status read_tenant(const Directive& directive, Tenant& tenant);

// Errors name the line of the tenant.
base::Result<TenantPlan> plan_tenant(const Tenant& tenant, const Topology& topology);

}  // namespace spillway::scenario
