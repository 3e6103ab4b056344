// SPDX-License-Identifier: Apache-2.0
//
// A job: hosts that send each other what a pattern says, over one protocol. Background traffic is a
// job as well, one that nobody waits for.
//
// `job` and `background` lines of a scenario are read into it. `background` takes all that `job`
// does but the pattern, which it is, and speaks DCTCP unless told otherwise. Keys of a protocol
// that the job does not speak are read and ignored, so that one file compares protocols by an
// override of job.protocol alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/units.h"
#include "scenario/directives.h"
#include "scenario/tcp_config.h"
#include "scenario/workload.h"
#include "transport/endpoint.h"
#include "wire/packet_auth.h"

namespace spillway::scenario {

enum class Protocol : std::uint8_t { kSpillway, kDctcp, kNewReno };
std::string_view protocol_name(Protocol protocol);

struct SpillwayOptions {
  std::uint32_t packet_bytes = 1472;  // UDP payload of a full packet
  std::uint8_t precision = 16;        // bits per value of a whole packet
  // Packets have the same sizes with each; what costs nothing per peer is good for many hosts.
  wire::Protection protection = wire::Protection::kCrc32c;
  std::uint64_t first_number = 0;  // where counters of packets begin, as after months
  bool real_bytes = false;  // encode, send and decode real tensors; else packets carry their size
  std::optional<base::BitRate> receive_rate;  // none: that of the host's link
  std::optional<base::Duration> deadline;     // of each flow
  transport::EndpointLimits limits;
  transport::ExchangeConfig exchange;
  transport::CongestionConfig congestion;
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

}  // namespace spillway::scenario
