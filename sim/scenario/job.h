// SPDX-License-Identifier: Apache-2.0
//
// A job: hosts that send each other flows in a pattern, over one protocol. Background traffic is a
// job as well, one that no run waits for.
//
// `job` and `background` lines of a scenario are read into it. `background` takes the keys of `job`
// except those of patterns, and uses DCTCP by default. Keys of a protocol that the job does not use
// are read and ignored, so that one file compares protocols with an override of job.protocol alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/units.h"
#include "sim/scenario/directives.h"
#include "sim/scenario/tcp_config.h"
#include "sim/scenario/workload.h"
#include "transport/endpoint.h"
#include "wire/packet_auth.h"

namespace spillway::scenario {

enum class Protocol : std::uint8_t { kSpillway, kDctcp, kNewReno };
std::string_view protocol_name(Protocol protocol);

struct SpillwayOptions {
  std::uint32_t packet_bytes = 1472;  // UDP payload of a full packet
  std::uint8_t precision = 16;        // bits per value of a whole packet
  // All choices give the same packet sizes; CRC-32C costs nothing per peer, which suits many hosts.
  wire::Protection protection = wire::Protection::kCrc32c;
  std::uint64_t first_number = 0;  // where packet counters start, as after months
  bool real_bytes = false;  // encode, send and decode real tensors; else packets carry only a size
  std::optional<base::BitRate> receive_rate;  // unset: the rate of the host's link
  std::optional<base::Duration> deadline;     // per flow
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
