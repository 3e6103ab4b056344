// SPDX-License-Identifier: Apache-2.0
#include "capi/comm_config.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <optional>

#include "capi/sized_struct.h"

namespace spillway::capi {
namespace {

constexpr std::int64_t kNanosecondsPerMillisecond = 1'000'000;

std::uint32_t in_milliseconds(base::Duration duration) {
  return static_cast<std::uint32_t>(duration.count() / kNanosecondsPerMillisecond);
}

// 0 is what a struct of zeros says, and leaves it to the runtime.
std::optional<base::Duration> duration_of(std::uint32_t ms) {
  return ms == 0 ? std::nullopt : std::optional(base::milliseconds(ms));
}

base::Status check(const spillway_comm_config& config) {
  if ((config.rank < 0) != (config.world < 0) || config.rank < -1 || config.world < -1) {
    return base::invalid_argument(
        fmt::format("rank {} of {}: set both, or both to -1 for what the environment says",
                    config.rank, config.world));
  }
  if (config.rank >= 0 && config.id == nullptr) {
    return base::invalid_argument(
        "a rank given by hand needs an id (spillway_unique_id_create) by which the ranks meet; "
        "without one, leave rank and world at -1 and set SPILLWAY_RANK, SPILLWAY_WORLD_SIZE and "
        "SPILLWAY_COMM_ID");
  }
  if (config.trim_bytes < -1 || config.threads < -1 || config.servers < -1) {
    return base::invalid_argument("trim_bytes, threads and servers are -1, 0 or more");
  }
  if (config.servers >= static_cast<std::int32_t>(runtime::kMostRanks)) {
    return base::invalid_argument(fmt::format("{} servers are too many: there may be {} ranks",
                                              config.servers, runtime::kMostRanks));
  }
  if (config.link_rate > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return base::invalid_argument(
        fmt::format("no link has a rate of {} bits per second", config.link_rate));
  }
  if (config.secret == nullptr && config.secret_size != 0) {
    return base::invalid_argument("secret_size is set but secret is NULL");
  }
  return {};
}

base::Result<runtime::Member> member_from(const spillway_comm_config& config,
                                          const runtime::Environment& environment) {
  if (config.rank >= 0) {
    return runtime::Member{static_cast<std::uint32_t>(config.rank),
                           static_cast<std::uint32_t>(config.world)};
  }
  // Servers that the environment knows of do not know this id.
  runtime::Environment without_servers = environment;
  without_servers.set("SPILLWAY_SERVERS", "");
  const base::Result<runtime::Launch> launch = runtime::launch_from_environment(without_servers);
  if (!launch.ok()) {
    return launch.status();
  }
  return runtime::Member{launch->rank, launch->world};
}

void take_network(const spillway_comm_config& config, runtime::CommunicatorOptions& options) {
  if (config.link_rate != 0) {
    options.link_rate = base::bits_per_second(static_cast<std::int64_t>(config.link_rate));
  }
  if (config.mtu != 0) {
    options.mtu = config.mtu;
  }
  if (config.trim_bytes >= 0) {
    options.trim_bytes = static_cast<unsigned>(config.trim_bytes);
  }
  if (config.threads >= 0) {
    options.threads = static_cast<unsigned>(config.threads);
  }
}

base::Status take_identity(const spillway_comm_config& config,
                           const runtime::Environment& environment,
                           runtime::CommunicatorOptions& options) {
  if (config.id == nullptr) {
    return {};
  }
  const base::Result<runtime::Member> member = member_from(config, environment);
  if (!member.ok()) {
    return member.status();
  }
  options.member = *member;
  std::memcpy(options.id.emplace().bytes.data(), config.id->bytes, sizeof(config.id->bytes));
  return {};
}

}  // namespace

spillway_comm_config default_comm_config() {
  const runtime::CommunicatorOptions options;
  spillway_comm_config config{};
  config.size = sizeof(config);
  config.rank = -1;
  config.world = -1;
  config.trim_bytes = -1;
  config.threads = -1;
  config.servers = -1;
  config.operation_timeout_ms = in_milliseconds(options.operation_timeout);
  return config;
}

base::Result<runtime::CommunicatorOptions> communicator_options_from(
    const spillway_comm_config* given, const runtime::Environment& environment) {
  const base::Result<spillway_comm_config> config =
      read_sized(given, default_comm_config(), "spillway_comm_config");
  if (!config.ok()) {
    return config.status();
  }
  if (base::Status status = check(*config); !status.ok()) {
    return status;
  }
  runtime::CommunicatorOptions options;
  if (base::Status status = take_identity(*config, environment, options); !status.ok()) {
    return status;
  }
  take_network(*config, options);
  if (config->servers >= 0) {
    options.servers = static_cast<std::uint16_t>(config->servers);
  }
  if (config->name != nullptr) {
    options.name = config->name;
  }
  if (config->secret != nullptr) {
    options.secret.assign(reinterpret_cast<const char*>(config->secret), config->secret_size);
  }
  options.peer_timeout = duration_of(config->peer_timeout_ms);
  options.rendezvous_patience = duration_of(config->rendezvous_timeout_ms);
  options.operation_timeout =
      duration_of(config->operation_timeout_ms).value_or(options.operation_timeout);
  return options;
}

}  // namespace spillway::capi
